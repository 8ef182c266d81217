#include "runtime/llm/layer_work.h"

#include <cmath>

#include "kernels/cpu/model/elementwise.h"
#include "kernels/cpu/model/rope.h"
#include "runtime/llm/expert_work.h"

namespace fasa {

KernelWork LayerWork::begin() const {
  const int64_t half = config_.rotary_dims / 2;
  for (int i = 0; i < config_.rotations(); ++i) {
    const Rotation& rotation = rotations_[static_cast<size_t>(i)];
    for_each_row(step_.tokens, half * 16, [&](int64_t row) {
      rope_angles(rotation.frequencies, rotation.factor, step_.positions[static_cast<size_t>(row)],
                  activations_.cosines(i) + row * half, activations_.sines(i) + row * half);
    });
  }
  if (weights_.embedding_norm().weight != nullptr) {
    for_each_row(step_.tokens, config_.hidden, [&](int64_t row) {
      normalise(activations_.residual() + row * config_.hidden, weights_.embedding_norm(),
                config_.hidden);
    });
  }
  return {.device_bytes =
              static_cast<uint64_t>(config_.rotations() * step_.tokens * half) * 2 * sizeof(float)};
}

void LayerWork::normalise_heads(const LayerWeights& layer, const Projection& wanted,
                                float* x) const {
  const int64_t dim = config_.head_dim;
  float* const keys = x + wanted.query_heads * dim;
  switch (config_.head_norm) {
    case HeadNorm::kNone:
      return;
    case HeadNorm::kTogether:
      normalise(x, layer.query_norm, wanted.query_heads * dim);
      if (wanted.key_heads > 0) normalise(keys, layer.key_norm, wanted.key_heads * dim);
      return;
    case HeadNorm::kShared:
    case HeadNorm::kPerHead:
      break;
  }
  const int64_t step = config_.head_norm == HeadNorm::kPerHead ? dim : 0;
  const auto each = [&](Norm norm, int heads, float* values) {
    for (int head = 0; head < heads; ++head, norm.weight += step) {
      normalise(values + head * dim, norm, dim);
    }
  };
  each(layer.query_norm, wanted.query_heads, x);
  each(layer.key_norm, wanted.key_heads, keys);
}

// One token's row of the projection: bias, norm per head, rotation, the model's dtype.
void LayerWork::finish_row(const Projection& wanted, int64_t row) const {
  const LayerWeights& layer = weights_.layer(wanted.layer);
  float* x = activations_.result() + row * layer.qkv.outputs();
  if (layer.qkv_bias != nullptr) {
    for (int64_t i = 0; i < wanted.width; ++i) x[i] += layer.qkv_bias[i];
  }
  normalise_heads(layer, wanted, x);
  const int rotation = config_.rotation(wanted.layer);
  if (rotation != kUnrotated) {
    const int64_t half = config_.rotary_dims / 2;
    const float* cosines = activations_.cosines(rotation) + row * half;
    const float* sines = activations_.sines(rotation) + row * half;
    const bool pairs = config_.family->rotary_layout == RotaryLayout::kInterleaved;
    const auto rotate = pairs ? rope_rotate_pairs : rope_rotate;
    for (int head = 0; head < wanted.query_heads + wanted.key_heads; ++head) {
      rotate(x + int64_t{head} * config_.head_dim, config_.rotary_dims, cosines, sines);
    }
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

KernelWork LayerWork::project(const Projection& wanted) const {
  const LayerWeights& layer = weights_.layer(wanted.layer);
  normalise_input(layer);
  layer.qkv.apply_first(activations_.input(), step_.runs, wanted.width, activations_.result());
  for_each_row(step_.tokens, wanted.width, [&](int64_t row) { finish_row(wanted, row); });
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
  return project({.layer = index,
                  .width = layer.qkv.outputs(),
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
  return project({.layer = index,
                  .width = width,
                  .query_heads = config_.query_heads,
                  .key_heads = 0,
                  .out = query});
}

uint64_t LayerWork::experts(const LayerWeights& layer) const {
  const int64_t hidden = config_.hidden;
  const uint64_t bytes = ExpertWork(config_, activations_, dtype_, step_.runs).run(layer.experts);
  for_each_row(step_.tokens, hidden, [&](int64_t row) {
    join_row(activations_.mixed() + row * hidden,
             {nullptr, layer.mlp_out_norm, config_.residual_scale}, hidden,
             activations_.residual() + row * hidden);
  });
  return bytes;
}

uint64_t LayerWork::mlp(const LayerWeights& layer) const {
  if (layer.experts.present()) return experts(layer);
  const int64_t hidden = config_.hidden;
  const int64_t intermediate = config_.intermediate;
  layer.gate_up.apply(activations_.input(), step_.runs, activations_.result());
  for_each_row(step_.tokens, intermediate * 8, [&](int64_t row) {
    const float* x = activations_.result() + row * layer.gate_up.outputs();
    std::byte* out = activations_.input() + row * intermediate * dtype_bytes(dtype_);
    const auto apply = config_.family->names.gated() ? activate_gate : activate;
    apply(config_.activation, x, layer.gate_up_bias, intermediate, dtype_, out);
  });
  layer.down.apply(activations_.input(), step_.runs, activations_.result());
  for_each_row(step_.tokens, hidden, [&](int64_t row) {
    join_row(activations_.result() + row * hidden,
             {layer.down_bias, layer.mlp_out_norm, config_.residual_scale}, hidden,
             activations_.residual() + row * hidden);
  });
  return layer.gate_up.work_bytes(step_.tokens) + layer.down.work_bytes(step_.tokens);
}

void LayerWork::take_sinks(const float* sinks) const {
  const int64_t heads = config_.query_heads;
  const int64_t dim = config_.value_dim();
  for_each_row(step_.tokens * heads, dim * 4, [&](int64_t row) {
    const float share = 1 / (1 + std::exp(sinks[row % heads] - activations_.lse()[row]));
    scale_row(share, dim, dtype_, activations_.attended() + row * dim * dtype_bytes(dtype_));
  });
}

KernelWork LayerWork::after_attention(int index) const {
  const LayerWeights& layer = weights_.layer(index);
  const int64_t hidden = config_.hidden;
  uint64_t bytes = 0;
  if (layer.sinks != nullptr) take_sinks(layer.sinks);
  if (config_.has_mla()) bytes = latent_work().values(layer.mla);
  layer.output.apply(config_.has_mla() ? activations_.input() : activations_.attended(), step_.runs,
                     activations_.result());
  for_each_row(step_.tokens, hidden, [&](int64_t row) {
    float* residual = activations_.residual() + row * hidden;
    const auto join = [&] {
      join_row(activations_.result() + row * hidden,
               {layer.output_bias, layer.attention_out_norm, config_.residual_scale}, hidden,
               residual);
    };
    std::byte* input = activations_.input() + row * hidden * dtype_bytes(dtype_);
    if (!config_.parallel) join();
    normalise(residual, layer.mlp_norm, hidden, dtype_, input);
    if (config_.parallel) join();
  });
  return {.device_bytes = bytes + layer.output.work_bytes(step_.tokens) + mlp(layer)};
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
