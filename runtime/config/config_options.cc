#include "runtime/config/config_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/base/units.h"
#include "runtime/config/config_values.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

template <typename E>
struct Named {
  std::string_view name;
  E value;
};
constexpr std::array<Named<bool>, 2> kSwitch{{{"on", true}, {"off", false}}};
constexpr std::array<Named<SlicePreset>, 5> kSlices{{{"default", SlicePreset::kDefault},
                                                     {"fine", SlicePreset::kFine},
                                                     {"paper", SlicePreset::kPaper},
                                                     {"lean", SlicePreset::kLean},
                                                     {"map", SlicePreset::kMap}}};
constexpr std::array<Named<RowPlacement>, 3> kPlacements{{{"host", RowPlacement::kHost},
                                                          {"device", RowPlacement::kDevice},
                                                          {"auto", RowPlacement::kAuto}}};

constexpr std::array<Named<PredictorKind>, 3> kPredictors{
    {{"auto", PredictorKind::kAuto},
     {"none", PredictorKind::kNone},
     {"runners-up", PredictorKind::kRunnersUp}}};

constexpr std::array<Named<WeightRounding>, 3> kRoundings{{{"as-is", WeightRounding::kAsIs},
                                                           {"int8", WeightRounding::kInt8},
                                                           {"int4", WeightRounding::kInt4}}};
constexpr std::array<Named<std::optional<WeightRounding>>, 3> kHeadRoundings{
    {{"auto", std::nullopt}, {"as-is", WeightRounding::kAsIs}, {"int8", WeightRounding::kInt8}}};
constexpr std::array<Named<DecodeActivations>, 2> kActivations{
    {{"model", DecodeActivations::kModel}, {"int8", DecodeActivations::kInt8}}};
constexpr std::array<Named<ExpertLocation>, 2> kExpertLocations{
    {{"device", ExpertLocation::kDevice}, {"host", ExpertLocation::kHost}}};

template <typename E, size_t N>
bool take_named(const Json& value, const std::array<Named<E>, N>& names, E& out) {
  if (!value.is_string()) return false;
  for (const auto& named : names) {
    if (named.name == value.get<std::string>()) {
      out = named.value;
      return true;
    }
  }
  return false;
}

template <typename E, size_t N>
Json name_of(E value, const std::array<Named<E>, N>& names) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const Named<E>& named) { return named.value == value; });
  return std::string(found->name);
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json or_auto(const std::optional<int>& value) { return value ? Json(*value) : Json("auto"); }

// 0 is a count.
Json count_json(const TokenCount& count) {
  return count.share > 0 && count.tokens == 0 ? Json(count.share) : Json(count.tokens);
}

Json or_auto(const std::optional<TokenCount>& count) {
  return count ? count_json(*count) : Json("auto");
}

Json get_counts(const Config& config) {
  if (config.selection.fac_tokens.empty()) return "auto";
  Json array = Json::array();
  for (const TokenCount& count : config.selection.fac_tokens) array.push_back(count_json(count));
  return array.size() == 1 ? array[0] : array;
}

// Bytes; a number below 1 MiB would lack its unit.
Json size_json(const std::optional<uint64_t>& bytes) {
  if (!bytes) return nullptr;
  return *bytes < (1 << 20) ? Json(fmt::format("{}B", *bytes)) : Json(*bytes);
}

constexpr std::string_view kSizeAllowed =
    "a size above 0: a number with B, kB, MB, GB, KiB, MiB, GiB or TiB, such as \"6GiB\", or bytes "
    "from 1 MiB on";

const std::array kOptions = std::to_array<ConfigOption>({
    {.table = "",
     .key = "preset",
     .flag = "",
     .type = "NAME",
     .allowed = "fasa-m, fasa-c, full",
     .help = "Sets selection.kind and placement.rows: fasa-m = kind fasa, rows on the host; fasa-c "
             "= kind fasa, rows on the device; full = kind full, rows on the device. An explicit "
             "value of either key wins.",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_string(v, c.preset); },
     .get = [](const Config& c) -> Json { return c.preset; }},
    {.table = "device",
     .key = "name",
     .flag = "device",
     .type = "NAME",
     .allowed = "auto, cpu, emulated, cuda:N",
     .help = "Where attention runs: cpu = host memory only; emulated = an accelerator emulated on "
             "the host, with its own memory, streams, link and a virtual clock; cuda:N = GPU N, in "
             "builds with CUDA; auto = cuda:0 if it can be opened, else cpu.",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_string(v, c.device.name); },
     .get = [](const Config& c) -> Json { return c.device.name; }},
    {.table = "device",
     .key = "gpu",
     .flag = "",
     .type = "NAME",
     .allowed = "a GPU that `fasa plan --list` shows, such as \"RTX 4060 Ti 16GB\"",
     .help = "A GPU by name. The emulated device uses its memory bandwidth and its link (unless "
             "link.bandwidth is set); a plan also uses its memory size.",
     .default_text = "none",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_string(v, c.device.gpu); },
     .get = [](const Config& c) -> Json { return c.device.gpu; }},
    {.table = "device",
     .key = "threads",
     .flag = "",
     .type = "N",
     .allowed = "0 to 1024",
     .help = "Threads for CPU kernels; 0 = all cores available to the process. Results do not "
             "depend on it.",
     .set = [](Config& c, const Json& v) { return take_int(v, c.device.threads); },
     .get = [](const Config& c) -> Json { return c.device.threads; }},
    {.table = "device",
     .key = "numa",
     .flag = "",
     .type = "auto|interleave|NODE",
     .allowed = "auto, interleave, or the number of a node",
     .help = "NUMA nodes for host rows: auto = the node nearest to the device; interleave = all "
             "nodes in turn; NODE = that node.",
     .set =
         [](Config& c, const Json& v) {
           if (v.is_number_integer()) c.device.numa = v.dump();
           return v.is_number_integer() || take_string(v, c.device.numa);
         },
     .get = [](const Config& c) -> Json { return c.device.numa; }},
    {.table = "device",
     .key = "graphs",
     .flag = "",
     .type = "on|off",
     .allowed = "on, off",
     .help = "on = CUDA devices record whole decode steps as CUDA graphs and launch a graph from "
             "the third step of the same kind on. Results do not depend on it.",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_named(v, kSwitch, c.device.graphs); },
     .get = [](const Config& c) -> Json { return name_of(c.device.graphs, kSwitch); }},
    {.table = "device",
     .key = "kernel_times",
     .flag = "",
     .type = "on|off",
     .allowed = "on, off",
     .help = "on = CUDA devices run a few small kernels when they are opened: plans use their "
             "times, and device auto uses the cpu if one of them fails. off = plans use defaults, "
             "for a driver or a profiler with which these kernels fail or hang.",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_named(v, kSwitch, c.device.kernel_times); },
     .get = [](const Config& c) -> Json { return name_of(c.device.kernel_times, kSwitch); }},
    {.table = "memory",
     .key = "device_memory",
     .flag = "",
     .type = "SIZE",
     .allowed = kSizeAllowed,
     .help = "Limit on all memory on the device: weights, activations, slices, rows, scratch.",
     .default_text = "no limit",
     .set = [](Config& c, const Json& v) { return take_bytes(v, c.memory.device_memory); },
     .get = [](const Config& c) { return size_json(c.memory.device_memory); }},
    {.table = "memory",
     .key = "host_memory",
     .flag = "",
     .type = "SIZE",
     .allowed = kSizeAllowed,
     .help = "Limit on host memory for rows.",
     .default_text = "no limit",
     .set = [](Config& c, const Json& v) { return take_bytes(v, c.memory.host_memory); },
     .get = [](const Config& c) { return size_json(c.memory.host_memory); }},
    {.table = "memory",
     .key = "pinned_memory",
     .flag = "",
     .type = "SIZE",
     .allowed = kSizeAllowed,
     .help = "Limit on pinned host memory, which the device copies directly.",
     .default_text = "no limit",
     .set = [](Config& c, const Json& v) { return take_bytes(v, c.memory.pinned_memory); },
     .get = [](const Config& c) { return size_json(c.memory.pinned_memory); }},
    {.table = "memory",
     .key = "snapshot_interval",
     .flag = "",
     .type = "N",
     .allowed = "multiples of 64 from 64 to 1048576",
     .help = "In models with linear attention: tokens between copies of a sequence's state in host "
             "memory. Truncating a conversation recomputes it from the last copy before the cut. A "
             "step takes one copy at most.",
     .set = [](Config& c, const Json& v) { return take_int(v, c.memory.snapshots.interval); },
     .get = [](const Config& c) -> Json { return c.memory.snapshots.interval; }},
    {.table = "memory",
     .key = "snapshot_turns",
     .flag = "",
     .type = "N",
     .allowed = "0 to 1000",
     .help = "In models with linear attention: how many of a sequence's last prompts and answers "
             "have a copy of the state at their end.",
     .set = [](Config& c, const Json& v) { return take_int(v, c.memory.snapshots.turns); },
     .get = [](const Config& c) -> Json { return c.memory.snapshots.turns; }},
    {.table = "weights",
     .key = "format",
     .flag = "weights",
     .type = "FORMAT",
     .allowed = "as-is, int8, int4",
     .help = "How a model's matrices are stored in memory: as-is = as in its files, packed or not; "
             "int8, int4 = matrices of 16 and 32 bits are rounded to 8 or 4 bits as they load. "
             "Embeddings stay in the file.",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_named(v, kRoundings, c.weights.rounding); },
     .get = [](const Config& c) { return name_of(c.weights.rounding, kRoundings); }},
    {.table = "weights",
     .key = "group",
     .flag = "weight_group",
     .type = "N",
     .allowed = "32, 64, 128",
     .help = "Inputs that share one scale in rounded weights.",
     .set = [](Config& c, const Json& v) { return take_int(v, c.weights.group); },
     .get = [](const Config& c) -> Json { return c.weights.group; }},
    {.table = "weights",
     .key = "lm_head",
     .flag = "",
     .type = "FORMAT",
     .allowed = "auto, as-is, int8",
     .help = "Format of the projection to logits; auto = int8 if other matrices are rounded, else "
             "as-is. If it shares the embeddings' matrix, rounding makes a separate copy of it.",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_named(v, kHeadRoundings, c.weights.head); },
     .get = [](const Config& c) { return name_of(c.weights.head, kHeadRoundings); }},
    {.table = "weights",
     .key = "activations",
     .flag = "",
     .type = "KIND",
     .allowed = "model, int8",
     .help = "Type of the activations in decode's products with packed weights: model = as they "
             "are; int8 = rounded in blocks of 32, which is faster.",
     .text = true,
     .set = [](Config& c,
               const Json& v) { return take_named(v, kActivations, c.weights.activations); },
     .get = [](const Config& c) { return name_of(c.weights.activations, kActivations); }},
    {.table = "weights",
     .key = "experts",
     .flag = "",
     .type = "PLACE",
     .allowed = "device, host",
     .help = "Where the weights of routed experts are stored: device = with all other weights; "
             "host = in host memory, from where each step reads the weights of the chosen experts "
             "over the link.",
     .text = true,
     .set = [](Config& c,
               const Json& v) { return take_named(v, kExpertLocations, c.weights.experts); },
     .get = [](const Config& c) { return name_of(c.weights.experts, kExpertLocations); }},
    {.table = "selection",
     .key = "kind",
     .flag = "selection",
     .type = "NAME",
     .allowed = selection_names(),
     .help =
         has_comparison_selections()
             ? "Which tokens a decode step attends to: fasa = the tokens with the best slice "
               "scores; full = all. For comparison, on the cpu device only: oracle = the best by "
               "whole keys, streaming = StreamingLLM, SnapKV, H2O, R-KV, Quest, SparQ, random."
             : "Which tokens a decode step attends to: fasa = the tokens with the best slice "
               "scores; full = all.",
     .default_text = "the preset's",
     .text = true,
     .set =
         [](Config& c, const Json& v) {
           const auto kind = v.is_string() ? find_selection(v.get<std::string>()) : std::nullopt;
           if (kind) c.selection.kind = *kind;
           return kind.has_value();
         },
     .get = [](const Config& c) -> Json { return std::string(selection_name(c.selection.kind)); }},
    {.table = "selection",
     .key = "slice",
     .flag = "",
     .type = "NAME",
     .allowed = "default, fine, paper, lean, map",
     .help = "What the slices store: default = all frequency chunks in int2; fine = all in int4, "
             "value codes as well; lean = half of them in int2; paper = a quarter of them in bf16; "
             "map = the FC map's choice (fasa "
             "calibrate --slice-bytes). Fewer than all frequency chunks need an FC map.",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_named(v, kSlices, c.selection.slice); },
     .get = [](const Config& c) { return name_of(c.selection.slice, kSlices); }},
    {.table = "selection",
     .key = "slice_dtype",
     .flag = "",
     .type = "DTYPE",
     .allowed = "f32, bf16, int8, int4, int2",
     .help = "Precision of the slices; overrides that of `slice`.",
     .default_text = "that of `slice`",
     .text = true,
     .set =
         [](Config& c, const Json& v) {
           const auto dtype =
               v.is_string() ? parse_slice_dtype(v.get<std::string>()) : std::nullopt;
           if (dtype) c.selection.slice_dtype = dtype;
           return dtype.has_value();
         },
     .get =
         [](const Config& c) {
           return c.selection.slice_dtype
                      ? Json(std::string(slice_dtype_name(*c.selection.slice_dtype)))
                      : Json(nullptr);
         }},
    {.table = "selection",
     .key = "tip_chunks",
     .flag = "",
     .type = "N",
     .allowed = "1 to the number of frequency chunks of a head",
     .help = "Frequency chunks per head in the slices; overrides the number of `slice`.",
     .default_text = "that of `slice`",
     .set = [](Config& c, const Json& v) { return take_int(v, c.selection.tip_chunks); },
     .get = [](const Config& c) { return or_null(c.selection.tip_chunks); }},
    {.table = "selection",
     .key = "fac_tokens",
     .flag = "",
     .type = "N|SHARE|LIST|auto",
     .allowed = "auto, a count of tokens from sinks + recent + 1, a share in (0, 1] with a decimal "
                "point, or an array with one of these per layer",
     .help =
         "Tokens attended to exactly, per KV head (the paper's N_fac), sinks and recent included. "
         "256 is a count; 0.25 and 1.0 are shares of the step's tokens. A count above the number "
         "of tokens selects all of them. low_bit_tokens are attended to in addition. auto = a "
         "sixteenth, from 320 to 1024, or 128 if all others are attended to by codes of at least 4 "
         "bits.",
     .set = [](Config& c, const Json& v) { return take_counts(v, c.selection.fac_tokens); },
     .get = get_counts},
    {.table = "selection",
     .key = "low_bit_tokens",
     .flag = "",
     .type = "N|SHARE|auto",
     .allowed = "auto, a count of tokens from 0, or a share in [0, 1] with a decimal point",
     .help = "The next best tokens after fac_tokens, attended to by codes of their keys and "
             "values. The codes lie on the device, so no row of these tokens is fetched. 0 = none, "
             "and no value codes are stored; 1.0 = all other tokens, whose codes are read by whole "
             "pages; auto = 1.0, or 0 where another option excludes low-bit tokens "
             "(docs/low-bit-set.md).",
     .set = [](Config& c, const Json& v) { return take_auto_count(v, c.selection.low_bit_tokens); },
     .get = [](const Config& c) { return or_auto(c.selection.low_bit_tokens); }},
    {.table = "selection",
     .key = "value_codes",
     .flag = "",
     .type = "DTYPE",
     .allowed = "int8, int4, int2",
     .help = "Precision of the value codes, by which low_bit_tokens are attended to.",
     .default_text = "int4 with slice = fine, else int2",
     .text = true,
     .set =
         [](Config& c, const Json& v) {
           const auto dtype =
               v.is_string() ? parse_slice_dtype(v.get<std::string>()) : std::nullopt;
           if (!dtype || !is_coded(*dtype)) return false;
           c.selection.value_codes = *dtype;
           return true;
         },
     .get =
         [](const Config& c) {
           return c.selection.value_codes
                      ? Json(std::string(slice_dtype_name(*c.selection.value_codes)))
                      : Json(nullptr);
         }},
    {.table = "selection",
     .key = "sinks",
     .flag = "",
     .type = "N",
     .allowed = "0 to 65536",
     .help = "First tokens of a sequence, which are always attended to.",
     .set = [](Config& c, const Json& v) { return take_int(v, c.selection.sinks); },
     .get = [](const Config& c) -> Json { return c.selection.sinks; }},
    {.table = "selection",
     .key = "recent",
     .flag = "",
     .type = "N",
     .allowed = "1 to 65536",
     .help = "Newest tokens of a sequence, which are always attended to.",
     .set = [](Config& c, const Json& v) { return take_int(v, c.selection.recent); },
     .get = [](const Config& c) -> Json { return c.selection.recent; }},
    {.table = "selection",
     .key = "dense_layers",
     .flag = "",
     .type = "LIST",
     .allowed = "an array of layer numbers, counted from 0",
     .help = "Layers that attend to all tokens.",
     .set = [](Config& c, const Json& v) { return take_layers(v, c.selection.dense_layers); },
     .get = [](const Config& c) -> Json { return c.selection.dense_layers; }},
    {.table = "selection",
     .key = "page_tokens",
     .flag = "",
     .type = "N",
     .allowed = "1, 8, 16, 32",
     .help = "Tokens that fasa selects together, by the mean of their keys (the paper's page-level "
             "selection). More than 1 keeps less of the attention than single tokens do "
             "(docs/results/selection.md).",
     .set = [](Config& c, const Json& v) { return take_int(v, c.selection.options.page_tokens); },
     .get = [](const Config& c) -> Json { return c.selection.options.page_tokens; }},
    {.table = "selection",
     .key = "seed",
     .flag = "selection_seed",
     .type = "N",
     .allowed = "0 or more",
     .help = "Seed of selection.kind = random.",
     .set =
         [](Config& c, const Json& v) {
           const bool ok = v.is_number_integer() && v.get<int64_t>() >= 0;
           if (ok) c.selection.options.seed = v.get<uint64_t>();
           return ok;
         },
     .get = [](const Config& c) -> Json { return c.selection.options.seed; }},
    {.table = "selection",
     .key = "map",
     .flag = "",
     .type = "FILE",
     .allowed = "the path of an FC map, from the working directory",
     .help = "FC map; only slices over fewer than all frequency chunks need one. If there is one, "
             "predictions read the first chunks of its order.",
     .default_text = "fc_map.json in the model's folder, NAME.fc_map.json beside NAME.gguf; if "
                     "missing, made from the prompt",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_string(v, c.selection.map); },
     .get = [](const Config& c) -> Json { return c.selection.map; }},
    {.table = "placement",
     .key = "rows",
     .flag = "",
     .type = "PLACE",
     .allowed = "host, device, auto",
     .help = "Where rows (whole keys and values) are stored: host; device; auto = on the host, "
             "with copies on the device while its memory lasts (the oldest copies are freed "
             "first). The cpu device has one memory, so all three are the same there.",
     .default_text = "the preset's",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_named(v, kPlacements, c.placement.rows); },
     .get = [](const Config& c) { return name_of(c.placement.rows, kPlacements); }},
    {.table = "placement",
     .key = "row_dtype",
     .flag = "",
     .type = "DTYPE",
     .allowed = "f32, f16, bf16, int8",
     .help = "How rows store keys and values. int8 = 8-bit codes with one scale for each token's "
             "key and value: half the memory and half the link traffic of bf16; heads need at "
             "least 32 dimensions. With int8, a key or value that holds a NaN or an infinity "
             "becomes NaN throughout.",
     .default_text = "the model folder's",
     .text = true,
     .set =
         [](Config& c, const Json& v) {
           const auto dtype = v.is_string() ? parse_row_dtype(v.get<std::string>()) : std::nullopt;
           if (dtype) c.placement.row_dtype = dtype;
           return dtype.has_value();
         },
     .get =
         [](const Config& c) {
           return c.placement.row_dtype ? Json(std::string(row_dtype_name(*c.placement.row_dtype)))
                                        : Json(nullptr);
         }},
    {.table = "placement",
     .key = "hot_rows",
     .flag = "",
     .type = "N|auto",
     .allowed = "auto, or 0 to 16777216",
     .help = "Fetched rows that stay on the device, per sequence, layer and KV head. auto = 2 x "
             "fac_tokens, or as many as fit if device memory is short. While memory is free it "
             "grows to at most 16 x fac_tokens (more on slower links); the extra rows are freed on "
             "demand. A sequence whose rows take no more than that has copies of them instead. "
             "Results do "
             "not depend on it.",
     .set = [](Config& c, const Json& v) { return take_auto_int(v, c.placement.hot_rows); },
     .get = [](const Config& c) { return or_auto(c.placement.hot_rows); }},
    {.table = "prefetch",
     .key = "depth",
     .flag = "",
     .type = "N|auto",
     .allowed = "auto, or 0 to the model's last layer (at most 4096)",
     .help = "How many layers ahead predicted rows are fetched; 0 = no prefetch; auto = 1 "
             "where the rows that the last steps fetched ahead, used and missed say that it pays. "
             "Above 1 the rows are the same. Results do not depend on it.",
     .set = [](Config& c, const Json& v) { return take_auto_int(v, c.prefetch.depth); },
     .get = [](const Config& c) { return or_auto(c.prefetch.depth); }},
    {.table = "prefetch",
     .key = "predictor",
     .flag = "",
     .type = "NAME",
     .allowed = "auto, none, runners-up",
     .help =
         "Rows that are fetched ahead: none; runners-up = the best tokens behind the layer's last "
         "set; auto = runners-up.",
     .text = true,
     .set = [](Config& c,
               const Json& v) { return take_named(v, kPredictors, c.prefetch.predictor); },
     .get = [](const Config& c) { return name_of(c.prefetch.predictor, kPredictors); }},
    {.table = "prefetch",
     .key = "streams",
     .flag = "",
     .type = "N",
     .allowed = "1 to 16",
     .help = "Number of streams that copy rows. Results do not depend on it.",
     .set = [](Config& c, const Json& v) { return take_int(v, c.prefetch.streams); },
     .get = [](const Config& c) -> Json { return c.prefetch.streams; }},
    {.table = "prefetch",
     .key = "head_groups",
     .flag = "",
     .type = "N|auto",
     .allowed = "auto, or 1 to 4",
     .help = "Number of groups of KV heads that are scored in turn: rows of one group are fetched "
             "while the next group is scored. auto = as many as the device's rates justify. "
             "Results do not depend on it.",
     .set = [](Config& c, const Json& v) { return take_auto_int(v, c.prefetch.head_groups); },
     .get = [](const Config& c) { return or_auto(c.prefetch.head_groups); }},
    {.table = "link",
     .key = "bandwidth",
     .flag = "",
     .type = "RATE",
     .allowed = "a rate above 0, such as \"16GB/s\"",
     .help = "Bandwidth of the emulated device's link, in each direction.",
     .default_text = "that of `gpu`; 25GB/s without one",
     .set =
         [](Config& c, const Json& v) {
           double rate = 0;
           if (!take_quantity(v, parse_rate, rate)) return false;
           c.link.bandwidth = rate;
           return true;
         },
     .get = [](const Config& c) -> Json {
       if (!c.link.bandwidth) return nullptr;
       return fmt::format("{:.12g}GB/s", *c.link.bandwidth / 1e9);
     }},
    {.table = "link",
     .key = "latency",
     .flag = "",
     .type = "TIME",
     .allowed = "a time, such as \"10us\" (ns, us, ms, s)",
     .help = "Latency of one transfer over the emulated device's link.",
     .set = [](Config& c,
               const Json& v) { return take_quantity(v, parse_seconds, c.link.latency); },
     .get = [](const Config& c) -> Json { return fmt::format("{:.12g}us", c.link.latency * 1e6); }},
    {.table = "trace",
     .key = "file",
     .flag = "trace_file",
     .type = "FILE",
     .allowed = "the path of a file in an existing folder",
     .help = "File to which `fasa generate` writes a timeline of the device's work, for "
             "ui.perfetto.dev or chrome://tracing.",
     .default_text = "no file",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_string(v, c.trace.file); },
     .get = [](const Config& c) -> Json {
       return c.trace.file.empty() ? Json(nullptr) : Json(c.trace.file);
     }},
    {.table = "sessions",
     .key = "dir",
     .flag = "sessions_dir",
     .type = "DIR",
     .allowed = "the path of a folder that no other server uses",
     .help = "Folder in which `fasa serve` stores idle conversations, and from which it loads them "
             "after a restart. If missing, it is created with access for its owner only.",
     .default_text = "no conversations on disk",
     .text = true,
     .set = [](Config& c, const Json& v) { return take_string(v, c.sessions.dir); },
     .get = [](const Config& c) -> Json {
       return c.sessions.dir.empty() ? Json(nullptr) : Json(c.sessions.dir);
     }},
    {.table = "sessions",
     .key = "limit",
     .flag = "sessions_limit",
     .type = "SIZE",
     .allowed = kSizeAllowed,
     .help =
         "Limit on the size of conversations on disk; the least recently used are deleted first.",
     .default_text = "64GiB",
     .set = [](Config& c, const Json& v) { return take_bytes(v, c.sessions.limit); },
     .get = [](const Config& c) -> Json { return size_json(c.sessions.limit); }},
    {.table = "sessions",
     .key = "idle_after",
     .flag = "",
     .type = "TIME",
     .allowed = "a time, such as \"600s\" (ns, us, ms, s)",
     .help = "Time since a conversation's last request after which it moves to disk and its memory "
             "is freed.",
     .set = [](Config& c,
               const Json& v) { return take_quantity(v, parse_seconds, c.sessions.idle_after); },
     .get = [](const Config& c) -> Json { return fmt::format("{:.12g}s", c.sessions.idle_after); }},
    {.table = "sessions",
     .key = "sparse_turn_tokens",
     .flag = "",
     .type = "N",
     .allowed = "0 to 65536",
     .help = "Longest new turn of a continued conversation, in tokens, that attends to selected "
             "tokens, as generated tokens do; longer turns attend to all tokens.",
     .set = [](Config& c, const Json& v) { return take_int(v, c.sessions.sparse_turn_tokens); },
     .get = [](const Config& c) -> Json { return c.sessions.sparse_turn_tokens; }},
    {.table = "serve",
     .key = "prompt_share",
     .flag = "",
     .type = "SHARE",
     .allowed = "a number from 0 to 1",
     .help =
         "Share of prompt tokens that `fasa serve` computes for the oldest prompt while shorter "
         "ones go first. 1 = in order of arrival; 0 = always the least left first, so that a "
         "long prompt may wait without limit.",
     .set = [](Config& c, const Json& v) { return take_share(v, c.serve.prompt_share); },
     .get = [](const Config& c) -> Json { return c.serve.prompt_share; }},
});

}  // namespace

std::span<const ConfigOption> config_options() { return kOptions; }

const ConfigOption* find_option(std::string_view table, std::string_view key) {
  const auto found = std::find_if(kOptions.begin(), kOptions.end(), [&](const ConfigOption& o) {
    return o.table == table && o.key == key;
  });
  return found == kOptions.end() ? nullptr : &*found;
}

std::string ConfigOption::path() const {
  return table.empty() ? std::string(key) : fmt::format("{}.{}", table, key);
}

std::string ConfigOption::flag_name() const { return "--" + dashed(flag.empty() ? key : flag); }

std::string ConfigOption::default_value() const {
  return default_text.empty() ? get(Config{}).dump() : std::string(default_text);
}

std::string ConfigOption::variable() const {
  std::string name = "FASA_" + std::string(flag.empty() ? key : flag);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

Json config_to_json(const Config& config) {
  Json json = Json::object();
  for (const ConfigOption& option : kOptions) {
    if (option.table.empty()) {
      json[std::string(option.key)] = option.get(config);
    } else {
      json[std::string(option.table)][std::string(option.key)] = option.get(config);
    }
  }
  return json;
}

}  // namespace fasa
