#include "runtime/llm/compute/model.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/linear_params.h"
#include "runtime/base/error.h"
#include "runtime/calibrate/geometry_fingerprint.h"
#include "runtime/llm/compute/model_impl.h"
#include "runtime/llm/compute/open_weights.h"
#include "runtime/llm/weights/random_weights.h"

namespace fasa {

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

namespace {

void require_runnable(const ModelConfig& config, const Device& device,
                      const WeightOptions& weights) {
  if (config.linear.key_dim > DeltaNetParams::kMaxKeyDim && device.traits().model_calls) {
    throw UsageError(
        fmt::format("linear_key_head_dim = {}: allowed on device '{}': up to {}; use --device cpu",
                    config.linear.key_dim, device.name(), DeltaNetParams::kMaxKeyDim));
  }
  if (device.host_work() != nullptr) return;
  if (weights.activations != DecodeActivations::kModel) {
    throw UsageError(
        fmt::format("--activations int8: not supported on device '{}'; use --activations model",
                    device.name()));
  }
  if (device.traits().model_calls) return;
  throw UsageError(fmt::format(
      "device '{}' cannot run a model that is being observed; allowed: --device cpu, emulated",
      device.name()));
}

DType chosen_dtype(const ModelConfig& config, std::optional<DType> dtype) {
  if (dtype == DType::kF16) throw UsageError("dtype = f16; allowed: f32, bf16, auto");
  return dtype.value_or(config.auto_dtype());
}

}  // namespace

Model Model::load(const std::string& path, Device& device, std::optional<DType> dtype,
                  const WeightOptions& weights, int64_t context) {
  ModelConfig config = ModelConfig::load(path, context);
  require_runnable(config, device, weights);
  const DType chosen = chosen_dtype(config, dtype);
  auto impl =
      std::make_unique<Impl>(open_weights(path), std::move(config), chosen, device, weights);
  if (weights.mtp_head) impl->add_mtp_head(open_weights(path), weights);
  return Model(std::move(impl));
}

Model Model::random(const ModelConfig& config, Device& device, std::optional<DType> dtype,
                    uint64_t seed, const WeightOptions& weights) {
  require_runnable(config, device, weights);
  auto impl = std::make_unique<Impl>(std::make_unique<RandomWeights>(seed), config,
                                     chosen_dtype(config, dtype), device, weights);
  if (weights.mtp_head) impl->add_mtp_head(std::make_unique<RandomWeights>(seed), weights);
  return Model(std::move(impl));
}

const ModelConfig& Model::config() const { return impl_->config(); }
DType Model::dtype() const { return impl_->dtype(); }
Device& Model::device() const { return impl_->device(); }
StreamView Model::stream() const { return impl_->stream(); }
WeightBytes Model::weight_bytes() const { return impl_->weight_bytes(); }
Model* Model::mtp_head() const { return impl_->mtp_head(); }

ModelFingerprint Model::fingerprint() const {
  const ModelConfig& config = impl_->config();
  ModelFingerprint print = with_heads_of(config.geometry(), {});
  print.model_type = config.model_type;
  print.rope_theta = config.rope.theta;
  print.rope_scaling = config.rope.scaling_text();
  print.key_rows = impl_->weights().key_rows();
  return print;
}

void Model::reserve(int step_tokens) {
  if (step_tokens < 1) {
    throw UsageError(fmt::format("step_tokens = {}; allowed: 1 or more", step_tokens));
  }
  impl_->reserve(step_tokens, 1);
}

void Model::shrink(int step_tokens) { impl_->shrink(step_tokens); }
uint64_t Model::activation_bytes(int step_tokens) const {
  return impl_->activation_bytes(step_tokens);
}

std::span<const float> Model::forward(Runtime& runtime, std::span<const int32_t> tokens,
                                      std::span<const StepSequence> step,
                                      const ForwardOptions& options) {
  return impl_->forward(runtime, tokens, step, options);
}

uint64_t Model::layer_expert_bytes() const { return impl_->layer_expert_bytes(); }
std::span<const float> Model::work(Runtime& runtime, const PromptPiece& piece) {
  return impl_->work(runtime, piece);
}

std::span<const float> Model::step(Runtime& runtime, std::span<const int32_t> tokens,
                                   std::span<const StepSequence> step,
                                   const ForwardOptions& options) {
  runtime.begin_step(step);
  try {
    const std::span<const float> logits = forward(runtime, tokens, step, options);
    runtime.end_step();
    return logits;
  } catch (...) {
    runtime.abort_step();
    throw;
  }
}

void Model::step_with_drafts(Runtime& runtime, std::span<const int32_t> tokens,
                             std::span<const StepSequence> step, const Judge& judge,
                             float* states) {
  runtime.begin_step(step);
  try {
    runtime.end_step(judge(forward(runtime, tokens, step, {.all_logits = true, .states = states})));
  } catch (...) {
    runtime.abort_step();
    throw;
  }
}

}  // namespace fasa
