#include "runtime/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/catalog/gpu_catalog.h"
#include "runtime/config/config_options.h"
#include "runtime/config/config_values.h"

namespace fasa {
namespace {

struct Preset {
  std::string_view name;
  SelectionKind selection;
  RowPlacement rows;
};

// A preset sets only these two values.
constexpr std::array<Preset, 3> kPresets{{
    {"fasa-m", SelectionKind::kFasa, RowPlacement::kHost},
    {"fasa-c", SelectionKind::kFasa, RowPlacement::kDevice},
    {"full", SelectionKind::kFull, RowPlacement::kDevice},
}};

void require(bool ok, std::string_view key, const std::string& given, const std::string& allowed) {
  if (!ok) throw ConfigError(std::string(key), given, allowed);
}

void validate_tokens(const TokenCount& count, const Config::Selection& selection) {
  const int floor = selection.sinks + selection.recent + 1;
  require(count.tokens == 0 || count.tokens >= floor, "selection.fac_tokens",
          fmt::to_string(count.tokens),
          fmt::format("at least sinks + recent + 1 = {} + {} + 1 = {}; lower sinks or recent, or "
                      "raise fac_tokens",
                      selection.sinks, selection.recent, floor));
}

// True if the selection keeps all tokens of any context.
bool selects_all(const Config::Selection& selection) {
  const auto& counts = selection.fac_tokens;
  const auto is_all = [](const TokenCount& count) { return count.tokens == 0 && count.share >= 1; };
  return !counts.empty() && std::all_of(counts.begin(), counts.end(), is_all);
}

void validate_low_bit(const Config::Selection& selection) {
  const TokenCount low_bit = selection.low_bit_tokens.value_or(TokenCount{});
  if (!low_bit.any() || selection.kind == SelectionKind::kFull) return;
  // Low-bit tokens are weighted by scores over the whole key, per head.
  require(selection.kind == SelectionKind::kFasa, "selection.low_bit_tokens", count_text(low_bit),
          fmt::format("0 with selection.kind = {}", selection_name(selection.kind)));
}

void validate_gpu(const std::string& name) {
  try {
    if (!name.empty()) find_gpu(name);
  } catch (const UsageError& error) {
    throw ConfigError("device.gpu", fmt::format("\"{}\"", name),
                      fmt::format("a GPU of the catalogue; {}", error.what()));
  }
}

}  // namespace

std::string count_text(const TokenCount& count) {
  if (count.max_tokens > 0) return fmt::format("{} to {}", count.min_tokens, count.max_tokens);
  return count.tokens != 0 ? fmt::to_string(count.tokens) : fmt::format("{:g}", count.share);
}

ConfigError::ConfigError(std::string key, const std::string& given, const std::string& allowed)
    : UsageError(fmt::format("{} = {}: allowed: {}", key, given, allowed)), key_(std::move(key)) {}

SliceDType Config::effective_slice_dtype() const {
  if (selection.slice_dtype) return *selection.slice_dtype;
  if (selection.slice == SlicePreset::kFine) return SliceDType::kInt4;
  return selection.slice == SlicePreset::kPaper ? SliceDType::kBF16 : SliceDType::kInt2;
}

SliceDType Config::effective_value_codes() const {
  const bool fine = selection.slice == SlicePreset::kFine;
  return selection.value_codes.value_or(fine ? SliceDType::kInt4 : SliceDType::kInt2);
}

int Config::effective_tip_chunks(int chunks) const {
  if (selection.tip_chunks) return *selection.tip_chunks;
  switch (selection.slice) {
    case SlicePreset::kDefault:
    case SlicePreset::kFine:
    case SlicePreset::kMap:
      return chunks;
    case SlicePreset::kPaper:
      return std::max(1, chunks / 4);
    case SlicePreset::kLean:
      return std::max(1, chunks / 2);
  }
  return chunks;
}

int Config::effective_fine_chunks() const {
  return effective_slice_dtype() == SliceDType::kInt2 ? selection.fine_chunks.value_or(0) : 0;
}

bool Config::ranks_chunks(int chunks) const {
  return reads_slices() && (effective_tip_chunks(chunks) < chunks || effective_fine_chunks() > 0);
}

bool Config::weighs_tokens(int chunks) const {
  return effective_tip_chunks(chunks) + effective_fine_chunks() >= chunks;
}

std::vector<TokenCount> Config::fac_tokens(int chunks) const {
  if (!selection.fac_tokens.empty()) return selection.fac_tokens;
  const bool fine = low_bit_tokens(chunks).share == 1 && slice_bits(effective_slice_dtype()) >= 4 &&
                    slice_bits(effective_value_codes()) >= 4;
  return {fine ? kFineFacTokens : kDefaultFacTokens};
}

bool Config::is_dense(int layer) const {
  const auto& dense = selection.dense_layers;
  return std::find(dense.begin(), dense.end(), layer) != dense.end();
}

Config Config::only_layer(int layer) const {
  Config one = *this;
  const auto& counts = selection.fac_tokens;
  if (counts.size() > 1) one.selection.fac_tokens = {counts.at(static_cast<size_t>(layer))};
  one.selection.dense_layers.clear();
  if (is_dense(layer)) one.selection.dense_layers = {0};
  return one;
}

std::shared_ptr<const TokenSelection> Config::make_selection() const {
  return fasa::make_selection(selection.kind);
}

TokenCount Config::low_bit_tokens(int chunks) const {
  if (selection.kind != SelectionKind::kFasa) return {};
  if (selection.low_bit_tokens) return *selection.low_bit_tokens;
  if (!weighs_tokens(chunks) || selects_all(selection)) return {};
  return {.tokens = 0, .share = 1};
}

bool Config::reads_slices() const { return selection.kind == SelectionKind::kFasa; }

WeightOptions Config::weight_options() const {
  WeightOptions options = weights;
  options.mtp_head = drafts.kind == DraftKind::kMtp;
  return options;
}

DeviceOptions Config::device_options() const {
  DeviceOptions options;
  options.name = device.name;
  options.threads = device.threads;
  options.numa = parse_numa(device.numa).value_or(NumaPolicy{});
  options.device_memory = memory.device_memory;
  options.host_memory = memory.host_memory;
  options.pinned_memory = memory.pinned_memory;
  options.kernel_times = device.kernel_times;
  options.link_latency = link.latency;
  if (!device.gpu.empty()) {
    const Gpu& gpu = find_gpu(device.gpu);
    options.memory_bandwidth = gpu.memory_bandwidth;
    options.operations = gpu.tensor_flops;
    options.kernels.set_rates(gpu.cycles, gpu.tensor_flops);
    options.link_bandwidth = gpu.link_bandwidth();
  }
  if (link.bandwidth) options.link_bandwidth = *link.bandwidth;
  return options;
}

void Config::apply_preset() {
  const auto found = std::find_if(kPresets.begin(), kPresets.end(),
                                  [&](const Preset& p) { return p.name == preset; });
  require(found != kPresets.end(), "preset", fmt::format("\"{}\"", preset), "fasa-m, fasa-c, full");
  selection.kind = found->selection;
  placement.rows = found->rows;
}

void Config::validate() const {
  validate_gpu(device.gpu);
  // A value is allowed if its option takes it.
  for (const ConfigOption& option : config_options()) {
    const nlohmann::json value = option.get(*this);
    Config scratch;
    if (value.is_null() || option.set(scratch, value)) continue;
    throw ConfigError(option.path(),
                      value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                      option.allowed);
  }
  for (const TokenCount& count : selection.fac_tokens) validate_tokens(count, selection);
  const int fine = selection.fine_chunks.value_or(0);
  require(fine == 0 || effective_slice_dtype() == SliceDType::kInt2, "selection.fine_chunks",
          fmt::to_string(fine),
          fmt::format("0 with slices in {}; other values need int2",
                      slice_dtype_name(effective_slice_dtype())));
  validate_low_bit(selection);
}

namespace {

// Adds the key's source to an error, if known.
template <typename Check>
void with_place(const std::map<std::string, std::string>& places, const Check& check) {
  try {
    check();
  } catch (const ConfigError& error) {
    const auto place = places.find(error.key());
    if (place == places.end()) throw;
    throw UsageError(place->second + error.what());
  }
}

}  // namespace

void Config::validate_for(const Geometry& geometry) const {
  with_place(places, [&] { check_for(geometry); });
}

void Config::validate_on(const DeviceTraits& traits) const {
  with_place(places, [&] { check_on(traits); });
}

// A token selection runs on the host and reads rows and sets between two kernels.
void Config::check_on(const DeviceTraits& traits) const {
  if (traits.done_on_return || !make_selection()) return;
  require(false, "selection.kind", fmt::format("\"{}\"", selection_name(selection.kind)),
          "on the cpu device (device.name = \"cpu\"); elsewhere: fasa, full");
}

void Config::check_for(const Geometry& geometry) const {
  require(geometry.alibi_slopes.empty() || !make_selection(), "selection.kind",
          fmt::format("\"{}\"", selection_name(selection.kind)),
          "for a model with ALiBi: fasa with its default rules, full");
  require(geometry.score_cap == 0 || !make_selection(), "selection.kind",
          fmt::format("\"{}\"", selection_name(selection.kind)),
          "for a model with a soft cap of scores: fasa with its default rules, full");
  const auto counts = selection.fac_tokens.size();
  require(counts <= 1 || counts == static_cast<size_t>(geometry.layers), "selection.fac_tokens",
          fmt::format("an array of {}", counts),
          fmt::format("one value, or one per layer of this model ({})", geometry.layers));
  for (const int layer : selection.dense_layers) {
    require(layer < geometry.layers, "selection.dense_layers", fmt::to_string(layer),
            fmt::format("layers of this model, 0 to {}", geometry.layers - 1));
  }
  const RowDType row_dtype = placement.row_dtype.value_or(RowDType());
  require(RowFormat{row_dtype, geometry.key_dim, geometry.value_dim}.holds_scales(),
          "placement.row_dtype", fmt::format("\"{}\"", row_dtype_name(row_dtype)),
          fmt::format("int8 for keys and values of at least {} dimensions, these have {} and {}; "
                      "else f32, f16, bf16",
                      kFewestCoded, geometry.key_dim, geometry.value_dim));
  require(prefetch.depth.value_or(0) <= geometry.layers, "prefetch.depth",
          fmt::to_string(prefetch.depth.value_or(0)),
          fmt::format("auto, or layers ahead within this model, 0 to {}", geometry.layers));
  require(selection.slice != SlicePreset::kMap ||
              (selection.slice_dtype.has_value() && selection.tip_chunks.has_value()),
          "selection.slice", "\"map\"",
          "with a model whose FC map says so (fasa calibrate --slice-bytes N)");
  require(effective_tip_chunks(geometry.chunks()) <= geometry.chunks(), "selection.tip_chunks",
          fmt::to_string(effective_tip_chunks(geometry.chunks())),
          fmt::format("1 to {}, the frequency chunks of this model's heads", geometry.chunks()));
  const int tip_chunks = effective_tip_chunks(geometry.chunks());
  require(effective_fine_chunks() <= tip_chunks, "selection.fine_chunks",
          fmt::to_string(effective_fine_chunks()),
          fmt::format("0 to {}, the frequency chunks in the slices", tip_chunks));
  require(!has_low_bit_set(geometry.chunks()) || weighs_tokens(geometry.chunks()),
          "selection.low_bit_tokens", count_text(low_bit_tokens(geometry.chunks())),
          fmt::format("0 with slices of {} of {} frequency chunks, whose scores are not attention "
                      "weights; other values need slices of all chunks, or as many in int4 "
                      "(fine_chunks) as are left out",
                      tip_chunks, geometry.chunks()));
}

}  // namespace fasa
