#include "runtime/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "offload/store/retention.h"
#include "runtime/api/memory_estimate.h"
#include "runtime/api/settings.h"
#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "runtime/config/config_options.h"
#include "scheduler/plan/head_groups.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {
namespace {

constexpr int64_t kMaxTokens = INT32_MAX;
// `full` has no loss of accuracy: it is preferred unless it is slower by more than this factor.
constexpr double kFullMayTake = 1.05;

struct SliceVariant {
  SlicePreset preset;
  std::optional<SliceDType> dtype;
  bool usual;
};
constexpr SliceVariant kVariants[] = {{SlicePreset::kDefault, {}, true},
                                      {SlicePreset::kFine, {}, true},
                                      {SlicePreset::kLean, {}, true},
                                      {SlicePreset::kPaper, {}, false},
                                      {SlicePreset::kDefault, SliceDType::kInt8, false}};

// The settings of a row by the names that a config file has for them.
void name_option(PlanOption& option, int chunks, bool unified) {
  const Config& config = option.config;
  if (option.chunks == 0) {
    option.name = config.preset;
    option.set = fmt::format("preset = \"{}\"", config.preset);
    return;
  }
  const auto text = [&](const char* key) {
    const nlohmann::json value = find_option("selection", key)->get(config);
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  option.name = text("slice");
  option.set = fmt::format("slice = \"{}\"", option.name);
  for (const char* key : {"slice_dtype", "fine_chunks", "low_bit_tokens"}) {
    const std::string value = text(key);
    if (value == "null" || value == "auto") continue;
    // A part of the FCs has no low-bit set anyway.
    if (value == "0" && option.chunks < chunks) continue;
    option.name += fmt::format(", {} {}", key, value);
    option.set += fmt::format(", {} = {}", key,
                              value.find_first_not_of("0123456789.") == std::string::npos
                                  ? value
                                  : fmt::format("\"{}\"", value));
  }
  if (unified || config.preset != "fasa-c") return;
  option.name += ", fasa-c";
  option.set = fmt::format("preset = \"fasa-c\", {}", option.set);
}

class Planner {
 public:
  explicit Planner(const PlanOptions& request)
      : request_(request), weights_(request.weights.value_or(by_bits(request))) {
    plan_.weight_bytes = weights_.total;
    plan_.host_weight_bytes = weights_.host;
    plan_.experts = expert_options();
    plan_.activation_bytes = weights_.activations;
    const auto project_scratch = request.machine.traits.project_scratch;
    if (project_scratch != nullptr) plan_.activation_bytes += project_scratch();
  }

  Plan run() {
    for (const char* preset : {"full", "fasa-c", "fasa-m"}) {
      add(preset, request_.config, {.configured = true, .usual = true});
    }
    for (const SliceVariant& variant : kVariants) add_variant(variant);
    add_low_bit_sets();
    plan_.recommended = recommend();
    return std::move(plan_);
  }

 private:
  std::vector<ExpertOption> expert_options() const {
    const MachineRates& rates = request_.machine.rates;
    if (weights_.experts == 0 || rates.unified) return {};
    const uint64_t others = weights_.total + weights_.host - weights_.experts;
    const auto chosen = static_cast<double>(weights_.chosen);
    const double transfers = request_.model.geometry.layers * rates.link_latency;
    return {{.on_host = false,
             .device_bytes = others + weights_.experts,
             .seconds = chosen / rates.memory_bandwidth},
            {.on_host = true,
             .device_bytes = others,
             .host_bytes = weights_.experts,
             .seconds = chosen / rates.link_bandwidth + transfers}};
  }
  static uint64_t layers_of(const ModelShape& model) {
    return static_cast<uint64_t>(model.geometry.layers);
  }
  static PlannedWeights by_bits(const PlanOptions& request) {
    const ModelShape& model = request.model;
    const auto bytes = [&](int64_t parameters) {
      return weight_bytes(parameters, request.weight_bits);
    };
    const int64_t chunk =
        std::min<int64_t>(request.prefill_chunk.value_or(kMinPrefillChunk), request.tokens);
    constexpr int64_t kMany = 4096;
    return {.total = bytes(model.device_parameters()),
            .layers = bytes(model.layer_parameters()) * layers_of(model),
            .head = bytes(model.head_parameters()),
            .activations = activation_bytes(model, chunk),
            .activations_per_token = activation_bytes(model, kMany) / kMany};
  }
  int min_chunk() const { return request_.prefill_chunk.value_or(kMinPrefillChunk); }
  StepSettings settings_of(const Config& config, int64_t tokens) const {
    return make_step_settings(config, request_.model.geometry, request_.row_dtype,
                              request_.machine.traits, tokens);
  }
  int step_tokens(int64_t tokens) const {
    return static_cast<int>(std::min<int64_t>(min_chunk(), tokens));
  }
  uint64_t device_bytes(const KvMemory& kv) const {
    return plan_.weight_bytes + plan_.activation_bytes + kv.device_total();
  }
  bool fits(const Config& config, int64_t tokens) const {
    return fits(memory_of(settings_of(config, tokens), tokens));
  }
  KvMemory memory_of(const StepSettings& settings, int64_t tokens) const {
    return memory_of(settings, tokens, step_tokens(tokens));
  }
  KvMemory memory_of(const StepSettings& settings, int64_t tokens, int step) const {
    return estimate_memory(settings, settings.max_hot_rows, tokens, step,
                           PrefetchControl::scratch_for(settings), kConversationRollback);
  }
  bool fits(const KvMemory& kv) const {
    return device_bytes(kv) <= request_.machine.usable_device_bytes() &&
           kv.host_needed() + weights_.host <= request_.machine.host_memory.value_or(UINT64_MAX);
  }

  // Memory grows with the context, so bisection finds the limit. Assumes no hot rows if their
  // number is automatic.
  std::optional<int64_t> longest_context(Config config) const {
    if (config.placement.rows != RowPlacement::kDevice && !request_.config.placement.hot_rows) {
      config.placement.hot_rows = 0;
    }
    if (fits(config, kMaxTokens)) return std::nullopt;
    int64_t good = 0;
    int64_t bad = kMaxTokens;
    while (bad - good > 1) {
      const int64_t middle = good + (bad - good) / 2;
      (fits(config, middle) ? good : bad) = middle;
    }
    return good;
  }

  // Reduces hot rows if memory is short, unless the config sets their number.
  void shrink_hot_rows(Config& config) const {
    if (config.placement.rows == RowPlacement::kDevice || config.placement.hot_rows) return;
    const int usual = settings_of(config, request_.tokens).max_hot_rows;
    for (const int hot_rows : {usual, usual / 2, 0}) {
      Config fewer = config;
      fewer.placement.hot_rows = hot_rows;
      if (!fits(fewer, request_.tokens)) continue;
      if (hot_rows != usual) config = fewer;
      return;
    }
  }

  void add_variant(const SliceVariant& variant) {
    Config config = request_.config;
    config.selection.slice = variant.preset;
    config.selection.slice_dtype = variant.dtype;
    config.selection.tip_chunks.reset();
    config.selection.fine_chunks.reset();
    if (variant.preset == SlicePreset::kFine) config.selection.value_codes.reset();
    const int chunks = request_.model.geometry.chunks();
    if (config.effective_tip_chunks(chunks) < chunks)
      config.selection.low_bit_tokens = TokenCount{};
    const Config& given = request_.config;
    if (config.effective_slice_dtype() == given.effective_slice_dtype() &&
        config.effective_fine_chunks() == given.effective_fine_chunks() &&
        config.effective_tip_chunks(chunks) == given.effective_tip_chunks(chunks)) {
      return;
    }
    for (const char* preset : {"fasa-c", "fasa-m"}) {
      const bool offered = request_.machine.rates.unified || std::string_view(preset) == "fasa-m";
      add(preset, config, {.configured = false, .usual = variant.usual && offered});
    }
  }

  // None, and all other tokens; unless configured.
  void add_low_bit_sets() {
    const TokenCount given = request_.config.low_bit_tokens(request_.model.geometry.chunks());
    if (!given.any()) return;
    for (const TokenCount& other : {TokenCount{}, TokenCount{.tokens = 0, .share = 1}}) {
      if (other == given) continue;
      Config config = request_.config;
      config.selection.low_bit_tokens = other;
      for (const char* preset : {"fasa-c", "fasa-m"}) {
        add(preset, config, {.configured = false, .usual = false});
      }
    }
  }

  struct Kind {
    bool configured;
    bool usual;
  };
  void add(const char* preset, Config config, Kind kind) {
    // One tier: fasa-m is the same as fasa-c.
    if (request_.machine.rates.unified && std::string_view(preset) == "fasa-m") return;
    config.preset = preset;
    config.apply_preset();
    shrink_hot_rows(config);
    PlanOption option;
    predict_steps(decoding_settings(config), option);
    const StepSettings settings = settings_of(config, request_.tokens);
    option.chunks = settings.layout.slice.coded_dims() / 2;
    option.fine_chunks = settings.layout.slice.fine / 2;
    option.slice_dtype = settings.layout.slice.dtype;
    if (settings.layout.has_values()) option.value_dtype = settings.layout.values.dtype;
    option.all_low_bit = settings.layout.has_values() &&
                         config.low_bit_tokens(request_.model.geometry.chunks()).share == 1;
    option.configured = kind.configured;
    option.usual = kind.usual;
    option.hot_rows = settings.max_hot_rows;
    option.kv = memory_of(settings, request_.tokens);
    option.device_bytes = device_bytes(option.kv);
    option.host_bytes = option.kv.host_needed() + weights_.host;
    option.int8_host_bytes = int8_host_bytes(settings);
    option.fits = fits(option.kv);
    add_extra_hot_rows(settings, config, option);
    add_prompt(settings, option);
    option.longest_context = longest_context(config);
    option.config = std::move(config);
    name_option(option, request_.model.geometry.chunks(), request_.machine.rates.unified);
    add_loss(settings, option);
    plan_.options.push_back(std::move(option));
  }

  uint64_t int8_host_bytes(StepSettings settings) const {
    RowFormat coded = settings.layout.row;
    coded.dtype = RowDType::kInt8;
    if (coded.holds_scales()) settings.layout.row = coded;
    return memory_of(settings, request_.tokens).host_needed() + weights_.host;
  }

  // The first layer that selects tokens stands for all. Codes of some FCs were not measured.
  void add_loss(const StepSettings& settings, PlanOption& option) const {
    if (option.chunks == 0) return;
    const int layer = selecting_layer(settings);
    const auto visible = settings.visible_tokens(layer, request_.tokens);
    option.attended = {
        .rows = settings.selected_tokens(layer, visible),
        .all_others = option.all_low_bit,
        .low_bit_tokens = option.all_low_bit ? 0 : settings.low_bit_tokens(layer, visible),
        .codes = option.slice_dtype};
    const bool whole = option.chunks == request_.model.geometry.chunks();
    const bool same_codes = !option.value_dtype || *option.value_dtype == option.slice_dtype;
    if (whole && same_codes && option.fine_chunks == 0) {
      option.loss = predicted_loss(option.attended, visible);
    }
  }

  static int selecting_layer(const StepSettings& settings) {
    int layer = 0;
    while (layer + 1 < settings.layer_count() && settings.layer(layer).dense) ++layer;
    return layer;
  }

  // Adds extra hot rows as the runtime does: not if their number was configured or had to shrink.
  void add_extra_hot_rows(const StepSettings& settings, const Config& config,
                          PlanOption& option) const {
    if (!option.fits || settings.access() == RowAccess::kLocal || config.placement.hot_rows) return;
    // Prefill scratch memory is free during decode.
    const uint64_t held = device_bytes(memory_of(settings, request_.tokens, 1));
    const uint64_t free = request_.machine.usable_device_bytes() - held;
    option.extra_hot_rows = extra_hot_rows(settings, settings.max_hot_rows, request_.tokens, free);
    if (option.extra_hot_rows == 0) return;
    option.extra_bytes =  // besides the guaranteed ones, which are empty meanwhile
        static_cast<uint64_t>(settings.layout.hot_bytes(option.extra_hot_rows) +
                              settings.layout.hot_table_bytes(option.extra_hot_rows));
  }

  // With the hot rows that a decoding sequence has while memory is free.
  StepSettings decoding_settings(const Config& config) const {
    StepSettings settings = settings_of(config, request_.tokens);
    PlanOption option;
    option.fits = fits(memory_of(settings, request_.tokens));
    add_extra_hot_rows(settings, config, option);
    settings.max_hot_rows = std::max(settings.max_hot_rows, option.extra_hot_rows);
    return settings;
  }

  // The first layer that selects tokens stands for all.
  void suppose(const StepSettings& settings, const CostModel& model, PlanOption& option) const {
    const int layer = selecting_layer(settings);
    const auto visible = static_cast<int32_t>(request_.tokens);
    const int hot = settings.max_hot_rows;
    const double found = 1 - likely_miss_share(settings, layer, visible, hot);
    option.hit_rate = model.hit_rate(request_.prediction.overlap.value_or(found), request_.tokens);
    option.coverage =
        request_.prediction.coverage.value_or(likely_coverage(settings, layer, visible, hot));
  }

  void predict_steps(const StepSettings& settings, PlanOption& option) const {
    const CostModel model(settings, request_.machine.rates, request_.tokens);
    suppose(settings, model, option);
    const StepLoad load = {
        .tokens = request_.tokens, .hit_rate = option.hit_rate, .out = DType::kBF16};
    const WeightLoad weights = weight_load();
    option.step = {model.step(load), model.step(load, {}, weights)};
    const bool fetches = option.step.attention.used_bytes > 0 && settings.max_hot_rows > 0;
    if (!fetches) return;
    const PrefetchLoad ahead = prefetch_load(option.coverage);
    option.prefetched = PlannedStep{model.step(load, ahead), model.step(load, ahead, weights)};
  }

  WeightLoad weight_load() const {
    const ModelShape& model = request_.model;
    const auto floats = [](int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); };
    return {.layer_bytes = weights_.layers / layers_of(model),
            .fetched_bytes = weights_.fetched() / layers_of(model),
            .expert_bytes = weights_.host > 0 ? weights_.experts / layers_of(model) : 0,
            .head_bytes = weights_.head,
            .hidden_bytes = floats(model.hidden),
            .logit_bytes = floats(model.vocab),
            .layer_operations = 2 * static_cast<uint64_t>(model.layer_parameters()),
            .head_operations = 2 * static_cast<uint64_t>(model.head_parameters())};
  }

  // Runners-up take no time of compute.
  static PrefetchLoad prefetch_load(double coverage) {
    PrefetchLoad load{.coverage = coverage};
    if (coverage > 0) load.overfetch = PlanPrediction::kPrefetchedPerMiss / coverage;
    return load;
  }

  void add_prompt(const StepSettings& settings, PlanOption& option) const {
    const uint64_t usable = request_.machine.usable_device_bytes();
    const auto left = [&](int chunk) {
      const int step = static_cast<int>(std::min<int64_t>(chunk, request_.tokens));
      const auto more = static_cast<uint64_t>(step - step_tokens(request_.tokens)) *
                        weights_.activations_per_token;
      const uint64_t taken = device_bytes(memory_of(settings, request_.tokens, step)) + more;
      return usable == UINT64_MAX ? UINT64_MAX : usable - std::min(usable, taken);
    };
    option.prompt = plan_prompt(settings, request_.machine.rates,
                                {.tokens = request_.tokens,
                                 .chunk = request_.prefill_chunk,
                                 .model = request_.model,
                                 .weights = weight_load(),
                                 .left = left});
  }

  // The fastest option that fits with the configured slices; else the fastest with smaller ones.
  std::optional<size_t> recommend() const {
    for (const bool configured : {true, false}) {
      std::optional<size_t> best;
      for (size_t i = 0; i < plan_.options.size(); ++i) {
        const PlanOption& option = plan_.options[i];
        if (!option.fits || option.configured != configured) continue;
        if (!best) {
          best = i;
          continue;
        }
        const bool full = plan_.options[*best].config.preset == "full";
        const double bound = plan_.options[*best].seconds() / (full ? kFullMayTake : 1);
        if (option.seconds() < bound) best = i;
      }
      if (best) return best;
    }
    return std::nullopt;
  }

  const PlanOptions& request_;
  const PlannedWeights weights_;
  Plan plan_;
};

}  // namespace

const PlanOption& Plan::option(const std::string& preset) const {
  for (const PlanOption& candidate : options) {
    if (candidate.configured && candidate.config.preset == preset) return candidate;
  }
  throw UsageError(fmt::format("the plan has no option with the preset {}", preset));
}

double PlanOption::seconds() const {
  const double without = step.whole.total();
  return prefetched ? std::min(prefetched->whole.total(), without) : without;
}

std::string what_would_fit(const PlanOptions& request, const Plan& plan) {
  const uint64_t usable = request.machine.usable_device_bytes();
  std::string text;
  int64_t longest = 0;
  std::string name;
  for (const PlanOption& option : plan.options) {
    if (option.longest_context.value_or(0) <= longest) continue;
    longest = *option.longest_context;
    name = option.set;
  }
  if (longest > 0) text = fmt::format("--tokens {} fits with {}. ", longest, name);
  for (const int bits : {8, 4}) {
    if (request.weights || bits >= request.weight_bits) continue;
    PlanOptions fewer = request;
    fewer.weight_bits = bits;
    const Plan other = make_plan(fewer);
    if (!other.recommended) continue;
    const PlanOption& option = other.options[*other.recommended];
    return text + fmt::format("--weight-bits {} takes {} of {} and fits ({}).", bits,
                              format_bytes(option.device_bytes), format_bytes(usable), option.set);
  }
  const uint64_t fixed = plan.weight_bytes + plan.activation_bytes;
  if (fixed > usable) {
    text += fmt::format("Weights and activations alone take {} of {}.", format_bytes(fixed),
                        format_bytes(usable));
  }
  return text;
}

Plan make_plan(const PlanOptions& request) {
  if (request.tokens < 1 || request.tokens > kMaxTokens) {
    throw UsageError(fmt::format("tokens = {}; allowed: 1 to {}", request.tokens, kMaxTokens));
  }
  return Planner(request).run();
}

}  // namespace fasa
