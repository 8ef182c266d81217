#include "runtime/llm/kernel_engine.h"

#include <algorithm>
#include <cstring>

namespace fasa {
namespace {

size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

KernelEngine::KernelEngine(const EngineParts& parts) : parts_(parts) {
  const size_t bytes = frequency_bytes();
  fixed_ = parts.device.allocate(
      MemorySpace::kDevice,
      aligned(bytes) + aligned(product_scratch()) + parts.weights.bytes().kernel_scratch,
      "scratch of projections");
  const Buffer staging =
      parts.device.allocate(MemorySpace::kHost, bytes, "rotary frequencies on their way");
  auto* staged = staging.as<float>();
  for (const Rotation& rotation : parts.rotations) {
    staged = std::copy(rotation.frequencies.begin(), rotation.frequencies.end(), staged);
  }
  parts.device.copy(fixed_.data(), staging.data(), bytes, CopyKind::kHostToDevice, parts.stream);
  parts.device.synchronize(parts.stream);
}

void KernelEngine::reserve(const Activations& larger) {
  const auto bytes = static_cast<size_t>(larger.tokens() + larger.rows()) * sizeof(int32_t);
  Buffer inputs = parts_.device.allocate(MemorySpace::kDevice, bytes, "positions of a step");
  staging_ = parts_.device.allocate(MemorySpace::kHost, bytes, "positions of a step");
  inputs_ = std::move(inputs);
}

void KernelEngine::stage(const StepShape& step) {
  auto* staged = staging_.as<int32_t>();
  for (const int64_t position : step.positions) *staged++ = static_cast<int32_t>(position);
  for (const int64_t row : step.logit_rows) *staged++ = static_cast<int32_t>(row);
}

void KernelEngine::begin(const StepShape& step) {
  step_ = &step;
  tag_ = tag_of(-1, step.cause);
  pending_ = {};
  const Activations& activations = parts_.activations;
  const ModelConfig& config = parts_.config;
  const auto count = step.positions.size() + step.logit_rows.size();
  parts_.device.copy(inputs_.data(), staging_.data(), count * sizeof(int32_t),
                     CopyKind::kHostToDevice, parts_.stream, tag_);
  parts_.device.copy(activations.residual(), activations.host_embeddings(),
                     static_cast<size_t>(step.tokens * config.hidden) * sizeof(float),
                     CopyKind::kHostToDevice, parts_.stream, tag_);
  for (int i = 0; config.rotary_dims > 0 && i < config.rotations(); ++i) {
    const int64_t half = config.rotary_dims / 2;
    enqueue(
        AnglesParams{.tokens = step.tokens,
                     .half = half,
                     .positions = inputs_.as<int32_t>(),
                     .frequencies = fixed_.as<float>() + i * half,
                     .factor = static_cast<float>(parts_.rotations[static_cast<size_t>(i)].factor),
                     .cosines = activations.cosines(i),
                     .sines = activations.sines(i)});
  }
  const Norm& norm = parts_.weights.embedding_norm();
  if (norm.weight == nullptr) return;
  enqueue(AddNormParams{.rows = step.tokens,
                        .size = config.hidden,
                        .residual = activations.residual(),
                        .norm = params_of(norm),
                        .dtype = DType::kF32,
                        .out = activations.residual()});
}

size_t KernelEngine::frequency_bytes() const {
  size_t count = 0;
  for (const Rotation& rotation : parts_.rotations) count += rotation.frequencies.size();
  return count * sizeof(float);
}

size_t KernelEngine::product_scratch() const {
  const auto bytes = parts_.device.traits().project_scratch;
  return bytes == nullptr ? 0 : bytes();
}

KernelProjection KernelEngine::projection() const {
  std::byte* const product = fixed_.data() + aligned(frequency_bytes());
  return {parts_.device,
          parts_.stream,
          parts_.dtype,
          {.product = product, .packed = product + aligned(product_scratch())}};
}

void KernelEngine::add_norm(const Norm& norm, AddOrder order, const Pending& pending) const {
  enqueue(AddNormParams{.rows = step_->tokens,
                        .size = parts_.config.hidden,
                        .residual = parts_.activations.residual(),
                        .addend = pending.addend,
                        .bias = pending.bias,
                        .addend_norm = params_of(pending.norm),
                        .scale = parts_.config.residual_scale,
                        .order = order,
                        .norm = params_of(norm),
                        .dtype = parts_.dtype,
                        .out = parts_.activations.input()});
}

void KernelEngine::project_heads(const LayerWeights& layer, const Heads& heads) const {
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  const int64_t width = int64_t{heads.all} * config.head_dim;
  project(layer.qkv, activations.input(), width, activations.result());
  const bool one_for_all = config.head_norm == HeadNorm::kShared;
  const bool normed = config.head_norm != HeadNorm::kNone;
  const bool rotated = heads.rotation != kUnrotated;
  enqueue(HeadsParams{.tokens = step_->tokens,
                      .heads = heads.all,
                      .query_heads = heads.query,
                      .key_heads = heads.key,
                      .dim = config.head_dim,
                      .rotary_dims = rotated ? config.rotary_dims : 0,
                      .rotary_layout = config.family->rotary_layout,
                      .x = activations.result(),
                      .x_stride = layer.qkv.outputs(),
                      .bias = layer.qkv_bias,
                      .query_norm = normed ? params_of(layer.query_norm) : NormParams{},
                      .key_norm = normed ? params_of(layer.key_norm) : NormParams{},
                      .norm_stride = one_for_all ? 0 : config.head_dim,
                      .norm_together = config.head_norm == HeadNorm::kTogether,
                      .cosines = rotated ? activations.cosines(heads.rotation) : nullptr,
                      .sines = rotated ? activations.sines(heads.rotation) : nullptr,
                      .dtype = parts_.dtype,
                      .out = heads.out});
}

void KernelEngine::to_attention(int index) {
  tag_ = tag_of(index, step_->cause);
  if (index > 0) after_attention(index - 1);
  const LayerWeights& layer = parts_.weights.layer(index);
  const ModelConfig& config = parts_.config;
  add_norm(layer.attention_norm, AddOrder::kAddThenNorm, pending_);
  pending_ = {};
  if (config.has_mla()) {
    const int64_t stride = config.qkv_width();
    std::byte* const queries = parts_.activations.qkv();
    latent_work().queries(layer.mla, queries, stride);
    latent_work().keys(layer.mla, queries + (stride - config.head_dim) * dtype_bytes(parts_.dtype),
                       stride);
    return;
  }
  project_heads(layer, {.all = config.query_heads + 2 * config.kv_heads,
                        .query = config.query_heads,
                        .key = config.kv_heads,
                        .rotation = config.rotation(index),
                        .out = parts_.activations.qkv()});
}

// The residual is whole: to_attention() has added what was pending.
void KernelEngine::query_of(int index, std::byte* query, OperationTag tag) {
  tag_ = tag;
  const LayerWeights& layer = parts_.weights.layer(index);
  const int heads = parts_.config.query_heads;
  add_norm(layer.attention_norm, AddOrder::kAddThenNorm, {});
  if (parts_.config.has_mla()) {
    return latent_work().queries(layer.mla, query, int64_t{heads} * parts_.config.head_dim);
  }
  project_heads(layer, {.all = heads,
                        .query = heads,
                        .key = 0,
                        .rotation = parts_.config.rotation(index),
                        .out = query});
}

void KernelEngine::after_attention(int index) {
  const LayerWeights& layer = parts_.weights.layer(index);
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  if (config.has_mla()) latent_work().values(layer.mla);
  project(layer.output, config.has_mla() ? activations.input() : activations.attended(),
          config.hidden, activations.result());
  add_norm(layer.mlp_norm, config.parallel ? AddOrder::kNormThenAdd : AddOrder::kAddThenNorm,
           {activations.result(), layer.output_bias, layer.attention_out_norm});
  project(layer.gate_up, activations.input(), layer.gate_up.outputs(), activations.result());
  enqueue(ActivateParams{.tokens = step_->tokens,
                         .size = config.intermediate,
                         .function = config.activation,
                         .gated = config.family->names.gated(),
                         .x = activations.result(),
                         .bias = layer.gate_up_bias,
                         .dtype = parts_.dtype,
                         .out = activations.input()});
  project(layer.down, activations.input(), config.hidden, activations.result());
  pending_ = {activations.result(), layer.down_bias, layer.mlp_out_norm};
}

void KernelEngine::logits() {
  tag_ = tag_of(-1, step_->cause);
  after_attention(parts_.config.layers - 1);
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  const auto rows = static_cast<int64_t>(step_->logit_rows.size());
  enqueue(AddNormParams{.rows = rows,
                        .size = config.hidden,
                        .residual = activations.residual(),
                        .addend = pending_.addend,
                        .bias = pending_.bias,
                        .addend_norm = params_of(pending_.norm),
                        .scale = config.residual_scale,
                        .tokens = inputs_.as<int32_t>() + step_->tokens,
                        .norm = params_of(parts_.weights.final_norm()),
                        .dtype = parts_.dtype,
                        .out = activations.input()});
  projection().enqueue(parts_.weights.head(), activations.input(), step_->logit_runs,
                       config.vocab_size, activations.logits(), tag_);
  if (const float* bias = parts_.weights.head_bias(); bias != nullptr) {
    enqueue(AddBiasParams{
        .rows = rows, .size = config.vocab_size, .bias = bias, .x = activations.logits()});
  }
  parts_.device.copy(activations.host_logits(), activations.logits(),
                     static_cast<size_t>(rows * config.vocab_size) * sizeof(float),
                     CopyKind::kDeviceToHost, parts_.stream, tag_);
}

}  // namespace fasa
