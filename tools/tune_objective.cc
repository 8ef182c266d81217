#include "tools/tune_objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/api/settings.h"
#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "runtime/llm/generator.h"
#include "runtime/llm/model_shape.h"
#include "runtime/llm/model_tokenizer.h"
#include "runtime/llm/open_model_device.h"
#include "runtime/plan/plan_machine.h"
#include "runtime/profile/profiled_decode.h"
#include "tools/prompt.h"
#include "tools/slice_choice.h"
#include "tools/terminal.h"

namespace fasa {
namespace {

constexpr int kPrefillChunk = 512;

MachineRates rates_of(const Config& config) {
  const DeviceOptions options = config.device_options();
  return {{.memory_bandwidth = options.memory_bandwidth,
           .kernels = KernelCosts::with_launch(options.launch_seconds),
           .link_bandwidth = options.link_bandwidth,
           .link_latency = options.link_latency},
          /*unified=*/false};
}

// Converts measured row counts into the cost model's input.
StepLoad load_of(const StepCounters& rows, int64_t tokens) {
  StepCounters without = rows;  // no prefetched rows
  without.hits -= std::min(without.hits, rows.prefetched_used);
  without.misses += rows.prefetched_used;
  return {.tokens = tokens, .hit_rate = without.hit_rate(), .out = DType::kBF16};
}

std::optional<PrefetchLoad> prefetch_of(const StepCounters& rows, PredictorKind predictor,
                                        const CacheLayout& layout, int64_t tokens,
                                        uint64_t projection_bytes) {
  if (rows.prefetched == 0) return std::nullopt;
  PrefetchLoad load;
  if (predictor == PredictorKind::kNextQuery)
    load = prediction_by_query(layout, tokens, projection_bytes);
  load.coverage = rows.coverage();
  if (rows.prefetched_used > 0) load.overfetch = 1 / rows.accuracy();
  return load;
}

std::optional<uint64_t> limit_beside_weights(const ModelShape& shape, int weight_bits,
                                             const Config& config) {
  const uint64_t usable = make_plan_machine(config, {}).usable_device_bytes();
  if (usable == UINT64_MAX) return std::nullopt;
  if (weight_bits == 0) return usable;
  const uint64_t weights =
      weight_bytes(shape.device_parameters(), weight_bits) + activation_bytes(shape, kPrefillChunk);
  if (weights >= usable) {
    throw BudgetError("device_memory", weights, 0, usable,
                      fmt::format("the weights of {} with {} bits", shape.name, weight_bits));
  }
  return usable - weights;
}

}  // namespace

void Deadline::check() const {
  if (Interrupts::came()) throw TimeUp("interrupted before one trial was done");
  if (left() <= 0) throw TimeUp("--time-limit is over");
}

SyntheticObjective::SyntheticObjective(Settings settings, const Config& config)
    : settings_(std::move(settings)),
      kv_limit_(limit_beside_weights(settings_.shape, settings_.weight_bits, config)),
      trace_(SelectionTrace::load(default_selection_trace())) {}

TuneMeasurement SyntheticObjective::measure(const Config& config, const Deadline& deadline) {
  const DeviceOptions options = config.device_options();
  SyntheticOptions synthetic;
  synthetic.geometry = settings_.shape.geometry;
  synthetic.tokens = settings_.tokens;
  synthetic.max_steps = 2 * settings_.steps;
  synthetic.row_dtype = config.placement.row_dtype.value_or(DType::kBF16);
  synthetic.config = config;
  synthetic.config.memory.device_memory = kv_limit_;
  synthetic.memory_bandwidth = options.memory_bandwidth;
  synthetic.launch_seconds = options.launch_seconds;
  synthetic.layer_bytes = bytes_of(settings_.shape.layer_parameters());
  synthetic.estimate_bytes = bytes_of(settings_.shape.query_parameters());
  synthetic.seed = settings_.seed;
  ProfiledSynthetic decode(synthetic, trace_);
  for (int i = 0; i < 2 * settings_.steps; ++i) {
    deadline.check();
    i < settings_.steps ? decode.warm_up() : decode.step();
  }
  const Profile& profile = decode.profile();
  TuneMeasurement measured;
  measured.tpot_seconds = profile.seconds() / settings_.steps;
  measured.rows = profile.total().rows;
  measured.decode_steps = profile.steps();
  measured.hidden = profile.total_hidden();
  measured.wasted_bytes = static_cast<double>(profile.total_wasted_bytes()) / settings_.steps;
  if (const auto predictions = decode.predictions(); predictions && predictions->not_recorded > 0) {
    measured.note = fmt::format(
        "depth {}: {} of {} predictions are deeper than the trace; the last step's set stands in",
        config.prefetch.depth ? fmt::to_string(*config.prefetch.depth) : "auto",
        predictions->not_recorded, predictions->asked);
  }
  measured.predicted_seconds = predict(config, measured);
  return measured;
}

double SyntheticObjective::predict(const Config& config, const TuneMeasurement& measured) const {
  const Geometry& geometry = settings_.shape.geometry;
  const MachineRates rates = rates_of(config);
  const StepSettings settings =
      make_step_settings(config, geometry, config.placement.row_dtype.value_or(DType::kBF16),
                         kEmulatedTraits, settings_.tokens);
  const auto prefetch = prefetch_of(measured.rows, settings.prefetch.predictor, settings.layout,
                                    settings_.tokens, bytes_of(settings_.shape.query_parameters()));
  const CostModel model(settings, rates, settings_.tokens);
  const double attention = model.step(load_of(measured.rows, settings_.tokens), prefetch).total();
  if (settings_.weight_bits == 0) return attention;
  const auto layer_bytes = static_cast<double>(bytes_of(settings_.shape.layer_parameters()));
  return attention +
         geometry.layers * (layer_bytes / rates.memory_bandwidth + rates.kernels.launch);
}

GenerationObjective::GenerationObjective(const std::string& dir, const std::string& prompt_file,
                                         int steps, const Config& config)
    : dir_(dir),
      steps_(steps),
      device_(open_model_device(config.device_options(), ModelConfig::load(dir))),
      model_(Model::load(dir, *device_, std::nullopt, config.weights)) {
  if (device_->unified()) {
    throw UsageError(
        fmt::format("device {} has only one memory, so no rows are fetched and there is nothing to "
                    "tune; allowed: emulated, cuda",
                    config.device.name));
  }
  const auto tokenizer = open_tokenizer(dir);
  prompt_ = read_prompt({.text = {}, .file = prompt_file, .ids_file = {}, .random_tokens = {}},
                        tokenizer.get(), model_.config().vocab_size);
  dims_ = choose_slices(model_, config, dir, prompt_).dims;
}

TuneMeasurement GenerationObjective::measure(const Config& config, const Deadline& deadline) {
  const RowDType row_dtype = config.placement.row_dtype.value_or(model_.config().row_dtype());
  Runtime runtime(*device_, config, geometry(), row_dtype, dims_, tokens() + steps_ + 1);
  GenerateOptions options;
  options.max_tokens = steps_ + 1;
  options.prefill_chunk = kPrefillChunk;
  options.on_prefill = [&](int64_t, int64_t) { deadline.check(); };
  const GenerateResult result = generate(model_, runtime, prompt_, options, nullptr);
  if (result.error) throw DeviceError(*result.error);
  deadline.check();
  if (result.decode_steps == 0) {
    throw UsageError(
        "the model ends the text at once, so there is no step to measure; give a prompt that the "
        "model continues");
  }
  TuneMeasurement measured;
  measured.decode_steps = static_cast<uint64_t>(result.decode_steps);
  measured.tpot_seconds = result.decode_seconds / static_cast<double>(result.decode_steps);
  measured.rows = runtime.metrics().rows;
  if (device_->virtual_clock()) {
    measured.predicted_seconds = predict(config, measured);
  }
  return measured;
}

double GenerationObjective::predict(const Config& config, const TuneMeasurement& measured) const {
  const ModelShape shape = model_shape(model_.config(), dir_);
  const auto bytes = static_cast<uint64_t>(dtype_bytes(model_.dtype()));
  const StepSettings settings = make_step_settings(
      config, geometry(), config.placement.row_dtype.value_or(model_.config().row_dtype()),
      kEmulatedTraits, tokens());
  const WeightLoad weights = {
      .layer_bytes = bytes * static_cast<uint64_t>(shape.layer_parameters()),
      .head_bytes = bytes * static_cast<uint64_t>(shape.head_parameters()),
      .hidden_bytes = sizeof(float) * static_cast<uint64_t>(shape.hidden),
      .logit_bytes = sizeof(float) * static_cast<uint64_t>(shape.vocab)};
  const auto prefetch =
      prefetch_of(measured.rows, settings.prefetch.predictor, settings.layout, tokens(),
                  bytes * static_cast<uint64_t>(shape.query_parameters()));
  return CostModel(settings, rates_of(config), tokens())
      .step(load_of(measured.rows, tokens()), prefetch, weights)
      .total();
}

}  // namespace fasa
