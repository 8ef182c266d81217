#include "runtime/config/config_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "runtime/config/option_kinds.h"
#include "scheduler/plan/head_groups.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

// The rows so far, and the table of the next ones.
struct Options {
  std::vector<ConfigOption> all;
  std::string_view table;

  void add(ConfigOption option) {
    option.table = table;
    all.push_back(std::move(option));
  }
};

constexpr int kMaxLayers = 4096;
constexpr int kMaxInterval = 1 << 20;

// 0 is a count.
Json count_json(const TokenCount& count) {
  return count.share > 0 && count.tokens == 0 ? Json(count.share) : Json(count.tokens);
}

Json auto_count_json(const std::optional<TokenCount>& count) {
  return count ? count_json(*count) : Json("auto");
}

Json counts_json(const std::vector<TokenCount>& counts) {
  if (counts.empty()) return "auto";
  Json array = Json::array();
  for (const TokenCount& count : counts) array.push_back(count_json(count));
  return array.size() == 1 ? array[0] : array;
}

std::string slice_dtype_names(bool coded_only) {
  std::vector<std::string_view> names;
  for (const SliceDType dtype : kSliceDTypes) {
    if (is_coded(dtype) || !coded_only) names.push_back(slice_dtype_name(dtype));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

bool take_interval(const Json& value, int& out) {
  const bool ok =
      is_integer_in(value, kLinearBlock, kMaxInterval) && value.get<int>() % kLinearBlock == 0;
  if (ok) out = value.get<int>();
  return ok;
}

// An array of numbers, or one of them.
bool take_layers(const Json& value, std::vector<int>& out) {
  const Json array = value.is_array() ? value : Json::array({value});
  const bool ok = std::all_of(array.begin(), array.end(), [](const Json& layer) {
    return is_integer_in(layer, 0, kMaxLayers - 1);
  });
  if (ok) out = array.get<std::vector<int>>();
  return ok;
}

void add_device(Options& out) {
  out.table = "device";
  out.add(text_option(
      {.key = "name",
       .help =
           "Where attention runs: cpu = host memory only; emulated = an accelerator emulated on "
           "the host, with its own memory, streams, link and a virtual clock; cuda:N = GPU N, in "
           "builds with CUDA; auto = cuda:0 if it can be opened, else cpu.",
       .flag = "device"},
      "auto, cpu, emulated, cuda:N", [](auto& c) -> auto& { return c.device.name; }));
  out.add(text_option(
      {.key = "gpu",
       .help = "A GPU by name. The emulated device uses its memory bandwidth and its link (unless "
               "link.bandwidth is set); a plan also uses its memory size.",
       .default_text = "none"},
      "a GPU that `fasa plan --list` shows, such as \"RTX 4060 Ti 16GB\"",
      [](auto& c) -> auto& { return c.device.gpu; }));
  out.add(integer_option(
      {.key = "threads",
       .help = "Threads for CPU kernels; 0 = all cores available to the process. Results do not "
               "depend on it."},
      0, 1024, [](auto& c) -> auto& { return c.device.threads; }));
  out.add(option_of(
      {.key = "numa",
       .help = "NUMA nodes for host rows: auto = the node nearest to the device; interleave = all "
               "nodes in turn; NODE = that node.",
       .type = "auto|interleave|NODE"},
      "", "auto, interleave, or the number of a node", true,
      [](Config& c, const Json& v) {
        const std::string text = v.is_number_integer() ? v.dump()
                                 : v.is_string()       ? v.get<std::string>()
                                                       : "";
        const bool ok = parse_numa(text).has_value();
        if (ok) c.device.numa = text;
        return ok;
      },
      [](const Config& c) -> Json { return c.device.numa; }));
  out.add(named_option<bool>(
      {.key = "graphs",
       .help = "on = CUDA devices record whole decode steps as CUDA graphs and launch a graph from "
               "the third step of the same kind on. Results do not depend on it.",
       .type = "on|off"},
      {{"on", true}, {"off", false}}, [](auto& c) -> auto& { return c.device.graphs; }));
  out.add(named_option<bool>(
      {.key = "kernel_times",
       .help =
           "on = CUDA devices run a few small kernels when they are opened: plans use their "
           "times, and device auto uses the cpu if one of them fails. off = plans use defaults, "
           "for a driver or a profiler with which these kernels fail or hang.",
       .type = "on|off"},
      {{"on", true}, {"off", false}}, [](auto& c) -> auto& { return c.device.kernel_times; }));
}

void add_memory(Options& out) {
  out.table = "memory";
  out.add(size_option(
      {.key = "device_memory",
       .help = "Limit on all memory on the device: weights, activations, slices, rows, scratch.",
       .default_text = "no limit"},
      [](auto& c) -> auto& { return c.memory.device_memory; }));
  out.add(size_option(
      {.key = "host_memory", .help = "Limit on host memory for rows.", .default_text = "no limit"},
      [](auto& c) -> auto& { return c.memory.host_memory; }));
  out.add(size_option(
      {.key = "pinned_memory",
       .help = "Limit on pinned host memory, which the device copies directly.",
       .default_text = "no limit"},
      [](auto& c) -> auto& { return c.memory.pinned_memory; }));
  out.add(taken_option(
      {.key = "snapshot_interval",
       .help =
           "In models with linear attention: tokens between copies of a sequence's state in host "
           "memory. Truncating a conversation recomputes it from the last copy before the cut."},
      "N", fmt::format("multiples of {} from {} to {}", kLinearBlock, kLinearBlock, kMaxInterval),
      [](auto& c) -> auto& { return c.memory.snapshots.interval; }, take_interval));
  out.add(integer_option(
      {.key = "snapshot_turns",
       .help = "In models with linear attention: how many of a sequence's last prompts and answers "
               "have a copy of the state at their end."},
      0, 1000, [](auto& c) -> auto& { return c.memory.snapshots.turns; }));
}

void add_weights(Options& out) {
  out.table = "weights";
  out.add(named_option<WeightRounding>(
      {.key = "format",
       .help =
           "How a model's matrices are stored in memory: as-is = as in its files, packed or not; "
           "int8, int4 = matrices of 16 and 32 bits are rounded to 8 or 4 bits as they load. "
           "Embeddings stay in the file.",
       .type = "FORMAT",
       .flag = "weights"},
      {{"as-is", WeightRounding::kAsIs},
       {"int8", WeightRounding::kInt8},
       {"int4", WeightRounding::kInt4}},
      [](auto& c) -> auto& { return c.weights.rounding; }));
  out.add(choice_option(
      {.key = "group",
       .help = "Inputs that share one scale in rounded weights.",
       .flag = "weight_group"},
      {32, 64, 128}, [](auto& c) -> auto& { return c.weights.group; }));
  out.add(named_option<std::optional<WeightRounding>>(
      {.key = "lm_head",
       .help =
           "Format of the projection to logits; auto = int8 if other matrices are rounded, else "
           "as-is. If it shares the embeddings' matrix, rounding makes a separate copy of it.",
       .type = "FORMAT"},
      {{"auto", std::nullopt}, {"as-is", WeightRounding::kAsIs}, {"int8", WeightRounding::kInt8}},
      [](auto& c) -> auto& { return c.weights.head; }));
  out.add(named_option<DecodeActivations>(
      {.key = "activations",
       .help = "Activations in decode's products with packed weights: model = 16 bits on a scale "
               "per 32 inputs, or bf16 for bf16 models if the processor multiplies it; int8 = 8 "
               "bits, which is faster.",
       .type = "KIND"},
      {{"model", DecodeActivations::kModel}, {"int8", DecodeActivations::kInt8}},
      [](auto& c) -> auto& { return c.weights.activations; }));
  out.add(named_option<ExpertLocation>(
      {.key = "experts",
       .help =
           "Where the weights of routed experts are stored: device = with all other weights; "
           "host = in host memory, from where each step reads the weights of the chosen experts "
           "over the link.",
       .type = "PLACE"},
      {{"device", ExpertLocation::kDevice}, {"host", ExpertLocation::kHost}},
      [](auto& c) -> auto& { return c.weights.experts; }));
}

void add_sets(Options& out) {
  out.table = "selection";
  out.add(parsed_option(
      {.key = "kind",
       .help =
           has_comparison_selections()
               ? "Which tokens a decode step attends to: fasa = the tokens with the best slice "
                 "scores; full = all. For comparison, on the cpu device only: oracle = the best by "
                 "whole keys, streaming = StreamingLLM, SnapKV, H2O, R-KV, Quest, SparQ."
               : "Which tokens a decode step attends to: fasa = the tokens with the best slice "
                 "scores; full = all.",
       .flag = "selection",
       .default_text = "the preset's"},
      "NAME", selection_names(), [](auto& c) -> auto& { return c.selection.kind; },
      [](const std::string& name) { return find_selection(name); }, selection_name));
  out.add(named_option<SlicePreset>(
      {.key = "slice",
       .help =
           "What the slices store: default = all frequency chunks in int2; fine = all in int4, "
           "value codes as well; lean = half of them in int2; paper = a quarter of them in bf16; "
           "map = the FC map's choice (fasa "
           "calibrate --slice-bytes). Fewer than all frequency chunks need an FC map."},
      {{"default", SlicePreset::kDefault},
       {"fine", SlicePreset::kFine},
       {"paper", SlicePreset::kPaper},
       {"lean", SlicePreset::kLean},
       {"map", SlicePreset::kMap}},
      [](auto& c) -> auto& { return c.selection.slice; }));
  out.add(parsed_option(
      {.key = "slice_dtype",
       .help = "Precision of the slices; overrides that of `slice`.",
       .default_text = "that of `slice`"},
      "DTYPE", slice_dtype_names(false), [](auto& c) -> auto& { return c.selection.slice_dtype; },
      parse_slice_dtype, slice_dtype_name));
  out.add(integer_option(
      {.key = "tip_chunks",
       .help = "Frequency chunks per head in the slices; overrides the number of `slice`.",
       .default_text = "that of `slice`"},
      1, 512, [](auto& c) -> auto& { return c.selection.tip_chunks; },
      "1 to the number of frequency chunks of a head"));
  out.add(integer_option(
      {.key = "fine_chunks",
       .help =
           "Frequency chunks per head in int4, the others in int2: the best ones of the FC map, "
           "which this needs. With as many left out (tip_chunks) the slices take no more memory, "
           "and low-bit tokens are still allowed.",
       .default_text = "0"},
      0, 512, [](auto& c) -> auto& { return c.selection.fine_chunks; },
      "0 to the number of frequency chunks in the slices"));
  out.add(taken_option(
      {.key = "fac_tokens",
       .help =
           "Tokens attended to exactly, per KV head (the paper's N_fac), sinks and recent "
           "included. "
           "256 is a count; 0.25 and 1.0 are shares of the step's tokens. A count above the number "
           "of tokens selects all of them. low_bit_tokens are attended to in addition. auto = a "
           "sixteenth, from 320 to 1024, or 128 if all others are attended to by codes of at least "
           "4 "
           "bits."},
      "N|SHARE|LIST|auto",
      "auto, a count of tokens from sinks + recent + 1, a share in (0, 1] with a decimal "
      "point, or an array with one of these per layer",
      [](auto& c) -> auto& { return c.selection.fac_tokens; }, take_counts, counts_json));
}

void add_counts(Options& out) {
  out.table = "selection";
  out.add(taken_option(
      {.key = "low_bit_tokens",
       .help =
           "The next best tokens after fac_tokens, attended to by codes of their keys and "
           "values. The codes lie on the device, so no row of these tokens is fetched. 0 = none, "
           "and no value codes are stored; 1.0 = all other tokens, whose codes are read by whole "
           "pages; auto = 1.0, or 0 where another option excludes low-bit tokens "
           "(docs/low-bit-set.md)."},
      "N|SHARE|auto", "auto, a count of tokens from 0, or a share in [0, 1] with a decimal point",
      [](auto& c) -> auto& { return c.selection.low_bit_tokens; }, take_auto_count,
      auto_count_json));
  out.add(parsed_option(
      {.key = "value_codes",
       .help = "Precision of the value codes, by which low_bit_tokens are attended to.",
       .default_text = "int4 with slice = fine, else int2"},
      "DTYPE", slice_dtype_names(true), [](auto& c) -> auto& { return c.selection.value_codes; },
      [](const std::string& name) {
        const auto dtype = parse_slice_dtype(name);
        return dtype && is_coded(*dtype) ? dtype : std::nullopt;
      },
      slice_dtype_name));
  out.add(integer_option(
      {.key = "sinks", .help = "First tokens of a sequence, which are always attended to."}, 0,
      65536, [](auto& c) -> auto& { return c.selection.sinks; }));
  out.add(integer_option(
      {.key = "recent", .help = "Newest tokens of a sequence, which are always attended to."}, 1,
      65536, [](auto& c) -> auto& { return c.selection.recent; }));
  out.add(taken_option(
      {.key = "dense_layers", .help = "Layers that attend to all tokens."}, "LIST",
      fmt::format("an array of layer numbers from 0 to {}", kMaxLayers - 1),
      [](auto& c) -> auto& { return c.selection.dense_layers; }, take_layers));
  out.add(text_option(
      {.key = "map",
       .help =
           "FC map; only slices over fewer than all frequency chunks, and fine_chunks, need one.",
       .type = "FILE",
       .default_text = "fc_map.json in the model's folder, NAME.fc_map.json beside NAME.gguf; if "
                       "missing, made from the prompt"},
      "the path of an FC map, from the working directory",
      [](auto& c) -> auto& { return c.selection.map; }));
}

void add_placement(Options& out) {
  out.table = "placement";
  out.add(named_option<RowPlacement>(
      {.key = "rows",
       .help = "Where rows (whole keys and values) are stored: host; device; auto = on the host, "
               "with copies on the device while its memory lasts (the oldest copies are freed "
               "first). The cpu device has one memory, so all three are the same there.",
       .type = "PLACE",
       .default_text = "the preset's"},
      {{"host", RowPlacement::kHost},
       {"device", RowPlacement::kDevice},
       {"auto", RowPlacement::kAuto}},
      [](auto& c) -> auto& { return c.placement.rows; }));
  out.add(parsed_option(
      {.key = "row_dtype",
       .help = "How rows store keys and values. int8 = 8-bit codes with one scale for each token's "
               "key and value: half the memory and half the link traffic of bf16; heads need at "
               "least 32 dimensions. With int8, a key or value that holds a NaN or an infinity "
               "becomes NaN throughout.",
       .default_text = "the model folder's"},
      "DTYPE", "f32, f16, bf16, int8", [](auto& c) -> auto& { return c.placement.row_dtype; },
      parse_row_dtype, row_dtype_name));
  out.add(auto_integer_option(
      {.key = "hot_rows",
       .help =
           "Fetched rows that stay on the device, per sequence, layer and KV head. auto = 2 x "
           "fac_tokens (4 x if rows are int8), or as many as fit if device memory is short. While "
           "memory is free it grows to at most 16 x fac_tokens (more on slower links); the extra "
           "rows are freed on demand. A sequence whose rows take no more than that has copies of "
           "them instead. Results do not depend on it."},
      0, 1 << 24, [](auto& c) -> auto& { return c.placement.hot_rows; }));
}

void add_prefetch(Options& out) {
  out.table = "prefetch";
  out.add(auto_integer_option(
      {.key = "depth",
       .help =
           "How many layers ahead predicted rows are fetched; 0 = no prefetch; auto = 1 "
           "where the rows that the last steps fetched ahead, used and missed say that it pays. "
           "Above 1 the rows are the same. Results do not depend on it."},
      0, kMaxLayers, [](auto& c) -> auto& { return c.prefetch.depth; },
      fmt::format("auto, or 0 to the model's last layer (at most {})", kMaxLayers)));
  out.add(named_option<PredictorKind>(
      {.key = "predictor",
       .help = "Rows that are fetched ahead: none; runners-up = the best tokens behind the layer's "
               "last "
               "set; auto = runners-up."},
      {{"auto", PredictorKind::kAuto},
       {"none", PredictorKind::kNone},
       {"runners-up", PredictorKind::kRunnersUp}},
      [](auto& c) -> auto& { return c.prefetch.predictor; }));
  out.add(integer_option(
      {.key = "streams", .help = "Number of streams that copy rows. Results do not depend on it."},
      1, 16, [](auto& c) -> auto& { return c.prefetch.streams; }));
  out.add(auto_integer_option(
      {.key = "head_groups",
       .help =
           "Number of groups of KV heads that are scored in turn: rows of one group are fetched "
           "while the next group is scored. auto = as many as the device's rates justify. "
           "Results do not depend on it."},
      1, HeadGroups::kMax, [](auto& c) -> auto& { return c.prefetch.head_groups; }));
}

void add_top(Options& out) {
  out.table = "";
  out.add(text_option(
      {.key = "preset",
       .help =
           "Sets selection.kind and placement.rows: fasa-m = kind fasa, rows on the host; fasa-c "
           "= kind fasa, rows on the device; full = kind full, rows on the device. An explicit "
           "value of either key wins."},
      "fasa-m, fasa-c, full", [](auto& c) -> auto& { return c.preset; }));
}

void add_link(Options& out) {
  out.table = "link";
  out.add(parsed_option(
      {.key = "bandwidth",
       .help = "Bandwidth of the emulated device's link, in each direction.",
       .default_text = "that of `gpu`; 25GB/s without one"},
      "RATE", "a rate above 0, such as \"16GB/s\"",
      [](auto& c) -> auto& { return c.link.bandwidth; }, parse_rate,
      [](double rate) { return fmt::format("{:.12g}GB/s", rate / 1e9); }));
  out.add(parsed_option(
      {.key = "latency", .help = "Latency of one transfer over the emulated device's link."},
      "TIME", "a time, such as \"10us\" (ns, us, ms, s)",
      [](auto& c) -> auto& { return c.link.latency; }, parse_seconds,
      [](double seconds) { return fmt::format("{:.12g}us", seconds * 1e6); }));
}

void add_answers(Options& out) {
  out.table = "drafts";
  out.add(named_option<DraftKind>(
      {.key = "kind",
       .help = "Drafts of an answer's next tokens, computed in one step with the newest token. "
               "lookup = what followed the same tokens before, in prompt and answer, as far as it "
               "saves time; mtp = by the head of multi-token prediction that files of some models "
               "carry. Answers do not depend on it.",
       .flag = "drafts"},
      {{"none", DraftKind::kNone}, {"lookup", DraftKind::kLookup}, {"mtp", DraftKind::kMtp}},
      [](auto& c) -> auto& { return c.drafts.kind; }));
  out.table = "audit";
  out.add(auto_integer_option(
      {.key = "every",
       .help = "Compares the distribution behind each Nth token of an answer with that of full "
               "attention over the same rows: what selection costs on this text. 0 = none; auto = "
               "as many tokens as take at most 5 % of the time. Answers do not depend on it.",
       .flag = "audit"},
      0, kMaxInterval, [](auto& c) -> auto& { return c.audit.every; },
      fmt::format("auto, or 0 to {}", kMaxInterval)));
}

void add_rest(Options& out) {
  out.table = "trace";
  out.add(text_option(
      {.key = "file",
       .help = "File to which `fasa generate` writes a timeline of the device's work, for "
               "ui.perfetto.dev or chrome://tracing.",
       .type = "FILE",
       .flag = "trace_file",
       .default_text = "no file"},
      "the path of a file in an existing folder", [](auto& c) -> auto& { return c.trace.file; }));
  out.table = "sessions";
  out.add(text_option(
      {.key = "dir",
       .help =
           "Folder in which `fasa serve` stores idle conversations, and from which it loads them "
           "after a restart. If missing, it is created with access for its owner only.",
       .type = "DIR",
       .flag = "sessions_dir",
       .default_text = "no conversations on disk"},
      "the path of a folder that no other server uses",
      [](auto& c) -> auto& { return c.sessions.dir; }));
  out.add(size_option(
      {.key = "limit",
       .help =
           "Limit on the size of conversations on disk; the least recently used are deleted first.",
       .flag = "sessions_limit",
       .default_text = "64GiB"},
      [](auto& c) -> auto& { return c.sessions.limit; }));
  out.add(parsed_option(
      {.key = "idle_after",
       .help =
           "Time since a conversation's last request after which it moves to disk and its memory "
           "is freed."},
      "TIME", "a time, such as \"600s\" (ns, us, ms, s)",
      [](auto& c) -> auto& { return c.sessions.idle_after; }, parse_seconds,
      [](double seconds) { return fmt::format("{:.12g}s", seconds); }));
  out.add(integer_option(
      {.key = "sparse_turn_tokens",
       .help = "Longest new turn of a continued conversation, in tokens, that attends to selected "
               "tokens, as generated tokens do; longer turns attend to all tokens."},
      0, 65536, [](auto& c) -> auto& { return c.sessions.sparse_turn_tokens; }));
  out.table = "serve";
  out.add(taken_option(
      {.key = "prompt_share",
       .help =
           "Share of prompt tokens that `fasa serve` computes for the oldest prompt while shorter "
           "ones go first. 1 = in order of arrival; 0 = always the least left first, so that a "
           "long prompt may wait without limit."},
      "SHARE", "a number from 0 to 1", [](auto& c) -> auto& { return c.serve.prompt_share; },
      take_share));
}

std::vector<ConfigOption> all_options() {
  Options options;
  for (const auto add : {add_top, add_device, add_memory, add_weights, add_sets, add_counts,
                         add_placement, add_prefetch, add_link, add_answers, add_rest})
    add(options);
  return std::move(options.all);
}

}  // namespace

std::span<const ConfigOption> config_options() {
  static const std::vector<ConfigOption> options = all_options();
  return options;
}

const ConfigOption* find_option(std::string_view table, std::string_view key) {
  for (const ConfigOption& option : config_options()) {
    if (option.table == table && option.key == key) return &option;
  }
  return nullptr;
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
  for (const ConfigOption& option : config_options()) {
    if (option.table.empty()) {
      json[std::string(option.key)] = option.get(config);
    } else {
      json[std::string(option.table)][std::string(option.key)] = option.get(config);
    }
  }
  return json;
}

}  // namespace fasa
