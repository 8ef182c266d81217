#include "runtime/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "offload/store/retention.h"
#include "runtime/api/memory_estimate.h"
#include "runtime/api/settings.h"
#include "runtime/base/error.h"
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
};
constexpr SliceVariant kVariants[] = {{SlicePreset::kDefault, {}},
                                      {SlicePreset::kFine, {}},
                                      {SlicePreset::kLean, {}},
                                      {SlicePreset::kPaper, {}},
                                      {SlicePreset::kDefault, SliceDType::kInt8}};

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
    plan_.prefill_seconds = prefill_seconds();
  }

  Plan run() {
    for (const char* preset : {"full", "fasa-c", "fasa-m"}) add(preset, request_.config, true);
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
    const int64_t chunk = std::min<int64_t>(request.prefill_chunk, request.tokens);
    return {.total = bytes(model.device_parameters()),
            .layers = bytes(model.layer_parameters()) * layers_of(model),
            .head = bytes(model.head_parameters()),
            .activations = activation_bytes(model, chunk)};
  }
  StepSettings settings_of(const Config& config, int64_t tokens) const {
    return make_step_settings(config, request_.model.geometry, request_.row_dtype,
                              request_.machine.traits, tokens);
  }
  int step_tokens(int64_t tokens) const {
    return static_cast<int>(std::min<int64_t>(request_.prefill_chunk, tokens));
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
    const int layers_ahead = settings.layer_count() - 1;  // the deepest prediction of a model
    return estimate_memory(settings, settings.max_hot_rows, tokens, step,
                           PrefetchControl::scratch_for(settings, layers_ahead),
                           kConversationRollback);
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
    if (variant.preset == SlicePreset::kFine) config.selection.value_codes.reset();
    const int chunks = request_.model.geometry.chunks();
    if (config.effective_tip_chunks(chunks) < chunks)
      config.selection.low_bit_tokens = TokenCount{};
    const Config& given = request_.config;
    if (config.effective_slice_dtype() == given.effective_slice_dtype() &&
        config.effective_tip_chunks(chunks) == given.effective_tip_chunks(chunks)) {
      return;
    }
    for (const char* preset : {"fasa-c", "fasa-m"}) add(preset, config, false);
  }

  // None, and all other tokens; unless configured.
  void add_low_bit_sets() {
    const TokenCount given = request_.config.low_bit_tokens(request_.model.geometry.chunks());
    if (!given.any()) return;
    for (const TokenCount& other : {TokenCount{}, TokenCount{.tokens = 0, .share = 1}}) {
      if (other == given) continue;
      Config config = request_.config;
      config.selection.low_bit_tokens = other;
      for (const char* preset : {"fasa-c", "fasa-m"}) add(preset, config, false);
    }
  }

  void add(const char* preset, Config config, bool configured) {
    // One tier: fasa-m is the same as fasa-c.
    if (request_.machine.rates.unified && std::string_view(preset) == "fasa-m") return;
    config.preset = preset;
    config.apply_preset();
    shrink_hot_rows(config);
    PlanOption option;
    predict_steps(decoding_settings(config), option);
    choose_prefetch(option, config);
    const StepSettings settings = settings_of(config, request_.tokens);
    option.chunks = settings.layout.slice.dims / 2;
    option.slice_dtype = settings.layout.slice.dtype;
    if (settings.layout.has_values()) option.value_dtype = settings.layout.values.dtype;
    option.all_low_bit = settings.layout.has_values() &&
                         config.low_bit_tokens(request_.model.geometry.chunks()).share == 1;
    option.configured = configured;
    option.hot_rows = settings.max_hot_rows;
    option.kv = memory_of(settings, request_.tokens);
    option.device_bytes = device_bytes(option.kv);
    option.host_bytes = option.kv.host_needed() + weights_.host;
    option.fits = fits(option.kv);
    add_extra_hot_rows(settings, config, option);
    option.longest_context = longest_context(config);
    option.config = std::move(config);
    plan_.options.push_back(std::move(option));
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
    int layer = 0;
    while (layer + 1 < settings.layer_count() && settings.layer(layer).dense) ++layer;
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

  // A configured prefetch stays. Otherwise one layer ahead, which is time enough for its rows.
  void choose_prefetch(const PlanOption& option, Config& config) const {
    Config::Prefetch& prefetch = config.prefetch;
    if (prefetch.depth || prefetch.predictor != PredictorKind::kAuto) return;
    const bool pays =
        option.prefetched && option.prefetched->whole.total() < option.step.whole.total();
    prefetch.depth = pays ? 1 : 0;
    prefetch.predictor = pays ? PredictorKind::kRunnersUp : PredictorKind::kNone;
  }

  WeightLoad weight_load() const {
    const ModelShape& model = request_.model;
    const auto floats = [](int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); };
    return {.layer_bytes = weights_.layers / layers_of(model),
            .fetched_bytes = weights_.fetched() / layers_of(model),
            .head_bytes = weights_.head,
            .hidden_bytes = floats(model.hidden),
            .logit_bytes = floats(model.vocab)};
  }

  // Runners-up take no time of compute.
  static PrefetchLoad prefetch_load(double coverage) {
    PrefetchLoad load{.coverage = coverage};
    if (coverage > 0) load.overfetch = PlanPrediction::kPrefetchedPerMiss / coverage;
    return load;
  }

  // Two operations per weight and token; causal attention covers half of all pairs.
  double prefill_seconds() const {
    if (request_.machine.tensor_flops <= 0) return 0;
    const Geometry& g = request_.model.geometry;
    const auto tokens = static_cast<double>(request_.tokens);
    const auto weights = static_cast<double>(g.layers * request_.model.layer_parameters());
    const double pairs = tokens * tokens / 2 * g.query_heads * g.layers;
    return (2 * tokens * weights + 2 * pairs * (g.key_dim + g.value_dim)) /
           request_.machine.tensor_flops;
  }

  static double seconds_of(const PlanOption& option) {
    const PlannedStep& step = option.prefetched ? *option.prefetched : option.step;
    return std::min(step.whole.total(), option.step.whole.total());
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
        const double bound = seconds_of(plan_.options[*best]) / (full ? kFullMayTake : 1);
        if (seconds_of(option) < bound) best = i;
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

Plan make_plan(const PlanOptions& request) {
  if (request.tokens < 1 || request.tokens > kMaxTokens) {
    throw UsageError(fmt::format("tokens = {}; allowed: 1 to {}", request.tokens, kMaxTokens));
  }
  return Planner(request).run();
}

}  // namespace fasa
