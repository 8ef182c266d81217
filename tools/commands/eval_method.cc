#include "tools/commands/eval_method.h"

#include <fmt/format.h>

#include <vector>

#include "runtime/config/config_options.h"

namespace fasa {
namespace {

std::string tokens_text(const Config& config, int chunks) {
  std::string text;
  for (const TokenCount& count : config.fac_tokens(chunks)) {
    text += text.empty() ? "" : "+";
    text += count_text(count);
  }
  if (config.has_low_bit_set(chunks)) {
    const TokenCount low_bit = config.low_bit_tokens(chunks);
    text +=
        fmt::format(" and {} low-bit {}", low_bit.share == 1 ? "all others" : count_text(low_bit),
                    slice_dtype_name(config.effective_value_codes()));
  }
  return text;
}

// Selection settings that differ from their defaults, without kind, budget and slices: "sinks 2".
std::string unusual_text(const Config& config) {
  const nlohmann::json own = config_to_json(config).at("selection");
  const nlohmann::json usual = config_to_json(Config()).at("selection");
  std::string text;
  for (const char* key : {"sinks", "recent", "dense_layers"}) {
    const nlohmann::json& value = own.at(key);
    if (value == usual.at(key)) continue;
    text +=
        fmt::format(", {} {}", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

}  // namespace

std::string method_name(const Config& config, const Geometry& geometry) {
  const std::string kind(selection_name(config.selection.kind));
  if (config.selection.kind == SelectionKind::kFull) return kind;
  const int chunks = geometry.chunks();
  std::string name = fmt::format("{} {}", kind, tokens_text(config, chunks));
  if (config.selection.kind == SelectionKind::kFasa) {
    name += fmt::format(", {} FCs {}", config.effective_tip_chunks(chunks),
                        slice_dtype_name(config.effective_slice_dtype()));
    if (config.effective_fine_chunks() > 0) {
      name += fmt::format(", {} in int4", config.effective_fine_chunks());
    }
  }
  return name + unusual_text(config);
}

nlohmann::json method_setup(const Config& config, const Geometry& geometry) {
  if (config.selection.kind == SelectionKind::kFull) {
    return {{"kind", selection_name(config.selection.kind)}};
  }
  Config decided = config;
  decided.selection.low_bit_tokens = config.low_bit_tokens(geometry.chunks());
  decided.selection.value_codes = config.effective_value_codes();
  nlohmann::json selection = config_to_json(decided).at("selection");
  selection.erase("map");
  if (config.selection.fac_tokens.empty()) {
    selection["fac_tokens"] = count_text(config.fac_tokens(geometry.chunks()).front());
  }
  return selection;
}

}  // namespace fasa
