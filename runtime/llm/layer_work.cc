#include "runtime/llm/layer_work.h"

#include "kernels/cpu/model/elementwise.h"
#include "kernels/cpu/model/rope.h"

namespace fasa {

KernelWork LayerWork::begin() const {
  const int64_t half = config_.rotary_dims / 2;
  for_each_row(step_.tokens, half * 16, [&](int64_t row) {
    rope_angles(frequencies_, config_.rope.attention_factor,
                step_.positions[static_cast<size_t>(row)], activations_.cosines() + row * half,
                activations_.sines() + row * half);
  });
  if (weights_.embedding_norm().weight != nullptr) {
    for_each_row(step_.tokens, config_.hidden, [&](int64_t row) {
      normalise(activations_.residual() + row * config_.hidden, weights_.embedding_norm(),
                config_.hidden);
    });
  }
  return {.device_bytes = static_cast<uint64_t>(step_.tokens * half) * 2 * sizeof(float)};
}

// One token's row of the projection: bias, norm per head, rotation, the model's dtype.
void LayerWork::finish_row(const LayerWeights& layer, const Projection& wanted, int64_t row) const {
  const int64_t dim = config_.head_dim;
  float* x = activations_.result() + row * layer.qkv.outputs();
  if (layer.qkv_bias != nullptr) {
    for (int64_t i = 0; i < wanted.width; ++i) x[i] += layer.qkv_bias[i];
  }
  const int64_t half = config_.rotary_dims / 2;
  const float* cosines = activations_.cosines() + row * half;
  const float* sines = activations_.sines() + row * half;
  const bool pairs = config_.family->rotary_layout == RotaryLayout::kInterleaved;
  const auto rotate = pairs ? rope_rotate_pairs : rope_rotate;
  for (int head = 0; head < wanted.query_heads + wanted.key_heads; ++head) {
    float* values = x + head * dim;
    const bool is_query = head < wanted.query_heads;
    if (config_.head_norm != HeadNorm::kNone) {
      Norm norm = is_query ? layer.query_norm : layer.key_norm;
      if (config_.head_norm == HeadNorm::kPerHead) {
        norm.weight += (is_query ? head : head - wanted.query_heads) * dim;
      }
      normalise(values, norm, dim);
    }
    rotate(values, config_.rotary_dims, cosines, sines);
  }
  store_row(x, wanted.width, dtype_, wanted.out + row * wanted.width * dtype_bytes(dtype_));
}

void LayerWork::normalise_input(const LayerWeights& layer) const {
  const int64_t hidden = config_.hidden;
  for_each_row(step_.tokens, hidden, [&](int64_t row) {
    normalise(activations_.residual() + row * hidden, layer.attention_norm, hidden, dtype_,
              activations_.input() + row * hidden * dtype_bytes(dtype_));
  });
}

KernelWork LayerWork::project(const LayerWeights& layer, const Projection& wanted) const {
  normalise_input(layer);
  layer.qkv.apply_first(activations_.input(), step_.runs, wanted.width, activations_.result());
  for_each_row(step_.tokens, wanted.width, [&](int64_t row) { finish_row(layer, wanted, row); });
  return {.device_bytes = layer.qkv.work_bytes(step_.tokens, wanted.width)};
}

KernelWork LayerWork::before_attention(int index) const {
  const LayerWeights& layer = weights_.layer(index);
  if (config_.has_mla()) {
    normalise_input(layer);
    const int64_t stride = config_.qkv_width();
    std::byte* keys = activations_.qkv() + (stride - config_.head_dim) * dtype_bytes(dtype_);
    return {.device_bytes = latent_work().queries(layer.mla, activations_.qkv(), stride) +
                            latent_work().keys(layer.mla, keys, stride)};
  }
  return project(layer, {.width = layer.qkv.outputs(),
                         .query_heads = config_.query_heads,
                         .key_heads = config_.kv_heads,
                         .out = activations_.qkv()});
}

KernelWork LayerWork::query_of(int index, std::byte* query) const {
  const LayerWeights& layer = weights_.layer(index);
  const int64_t width = int64_t{config_.query_heads} * config_.head_dim;
  if (config_.has_mla()) {
    normalise_input(layer);
    return {.device_bytes = latent_work().queries(layer.mla, query, width)};
  }
  return project(
      layer, {.width = width, .query_heads = config_.query_heads, .key_heads = 0, .out = query});
}

void LayerWork::mlp(const LayerWeights& layer) const {
  const int64_t hidden = config_.hidden;
  const int64_t intermediate = config_.intermediate;
  layer.gate_up.apply(activations_.input(), step_.runs, activations_.result());
  for_each_row(step_.tokens, intermediate * 8, [&](int64_t row) {
    const float* x = activations_.result() + row * layer.gate_up.outputs();
    std::byte* out = activations_.input() + row * intermediate * dtype_bytes(dtype_);
    const auto apply = config_.family->names.gate.empty() ? activate : activate_gate;
    apply(config_.activation, x, layer.gate_up_bias, intermediate, dtype_, out);
  });
  layer.down.apply(activations_.input(), step_.runs, activations_.result());
  for_each_row(step_.tokens, hidden, [&](int64_t row) {
    add_row(activations_.result() + row * hidden, layer.down_bias, hidden,
            activations_.residual() + row * hidden);
  });
}

KernelWork LayerWork::after_attention(int index) const {
  const LayerWeights& layer = weights_.layer(index);
  const int64_t hidden = config_.hidden;
  uint64_t bytes = 0;
  if (config_.has_mla()) bytes = latent_work().values(layer.mla);
  layer.output.apply(config_.has_mla() ? activations_.input() : activations_.attended(), step_.runs,
                     activations_.result());
  for_each_row(step_.tokens, hidden, [&](int64_t row) {
    float* residual = activations_.residual() + row * hidden;
    const float* attended = activations_.result() + row * hidden;
    std::byte* input = activations_.input() + row * hidden * dtype_bytes(dtype_);
    if (!config_.parallel) add_row(attended, layer.output_bias, hidden, residual);
    normalise(residual, layer.mlp_norm, hidden, dtype_, input);
    if (config_.parallel) add_row(attended, layer.output_bias, hidden, residual);
  });
  mlp(layer);
  return {.device_bytes = bytes + layer.output.work_bytes(step_.tokens) +
                          layer.gate_up.work_bytes(step_.tokens) +
                          layer.down.work_bytes(step_.tokens)};
}

KernelWork LayerWork::logits() const {
  const int64_t hidden = config_.hidden;
  const auto rows = static_cast<int64_t>(step_.logit_rows.size());
  for_each_row(rows, hidden, [&](int64_t row) {
    const int64_t token = step_.logit_rows[static_cast<size_t>(row)];
    normalise(activations_.residual() + token * hidden, weights_.final_norm(), hidden, dtype_,
              activations_.input() + row * hidden * dtype_bytes(dtype_));
  });
  weights_.head().apply(activations_.input(), step_.logit_runs, activations_.logits());
  if (const float* bias = weights_.head_bias(); bias != nullptr) {
    const int64_t vocab = config_.vocab_size;
    for_each_row(rows, vocab,
                 [&](int64_t row) { add_bias(bias, vocab, activations_.logits() + row * vocab); });
  }
  return {.device_bytes = weights_.head().work_bytes(rows)};
}

}  // namespace fasa
