#include "runtime/llm/layer_work.h"

namespace fasa {

void LayerWork::begin() const {
  const Activations& activations = parts_.activations;
  const ModelConfig& config = parts_.config;
  for (int i = 0; config.rotary_dims > 0 && i < config.rotations(); ++i) {
    const auto rotation = static_cast<size_t>(i);
    sink_.run(AnglesParams{.tokens = step_.tokens,
                           .half = config.rotary_dims / 2,
                           .positions = inputs_.positions,
                           .frequencies = inputs_.frequencies[rotation],
                           .factor = static_cast<float>(parts_.rotations[rotation].factor),
                           .cosines = activations.cosines(i),
                           .sines = activations.sines(i)});
  }
  const Norm& norm = parts_.weights.embedding_norm();
  if (norm.weight == nullptr) return;
  sink_.run(AddNormParams{.rows = step_.tokens,
                          .size = config.hidden,
                          .residual = activations.residual(),
                          .norm = norm,
                          .dtype = DType::kF32,
                          .out = activations.residual()});
}

void LayerWork::add_norm(const Norm& norm, AddOrder order, const Pending& pending) const {
  sink_.run(AddNormParams{.rows = step_.tokens,
                          .size = parts_.config.hidden,
                          .residual = parts_.activations.residual(),
                          .addend = pending.addend,
                          .bias = pending.bias,
                          .addend_norm = pending.norm,
                          .scale = parts_.config.residual_scale,
                          .order = order,
                          .norm = norm,
                          .dtype = parts_.dtype,
                          .out = parts_.activations.input()});
}

void LayerWork::project_heads(int index, const Heads& heads) const {
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  const LayerWeights& layer = parts_.weights.layer(index);
  sink_.project(layer.qkv, activations.input(), step_.runs, int64_t{heads.all} * config.head_dim,
                activations.result());
  const bool one_for_all = config.head_norm == HeadNorm::kShared;
  const bool normed = config.head_norm != HeadNorm::kNone;
  const int rotation = config.rotation(index);
  const bool rotated = rotation != kUnrotated;
  sink_.run(HeadsParams{.tokens = step_.tokens,
                        .heads = heads.all,
                        .query_heads = heads.query,
                        .key_heads = heads.key,
                        .dim = config.head_dim,
                        .rotary_dims = rotated ? config.rotary_dims : 0,
                        .rotary_layout = config.family->rotary_layout,
                        .x = activations.result(),
                        .x_stride = layer.qkv.outputs(),
                        .bias = layer.qkv_bias,
                        .query_norm = normed ? layer.query_norm : Norm{},
                        .key_norm = normed ? layer.key_norm : Norm{},
                        .norm_stride = one_for_all ? 0 : config.head_dim,
                        .norm_together = config.head_norm == HeadNorm::kTogether,
                        .cosines = rotated ? activations.cosines(rotation) : nullptr,
                        .sines = rotated ? activations.sines(rotation) : nullptr,
                        .growth = config.query_growth,
                        .positions = inputs_.positions,
                        .dtype = parts_.dtype,
                        .out = heads.out});
}

void LayerWork::to_attention(int index) const {
  if (index == 0) {
    begin();
    before_attention(index, {});
  } else {
    before_attention(index, after_attention(index - 1));
  }
}

void LayerWork::before_attention(int index, const Pending& pending) const {
  const LayerWeights& layer = parts_.weights.layer(index);
  const ModelConfig& config = parts_.config;
  std::byte* const qkv = parts_.activations.qkv();
  add_norm(layer.attention_norm, AddOrder::kAddThenNorm, pending);
  if (config.has_mla()) {
    const int64_t stride = config.qkv_width();
    latent_work().queries(layer.mla, qkv, stride);
    latent_work().keys(layer.mla, qkv + (stride - config.head_dim) * dtype_bytes(parts_.dtype),
                       stride);
    return;
  }
  project_heads(index, {.all = config.query_heads + 2 * config.kv_heads,
                        .query = config.query_heads,
                        .key = config.kv_heads,
                        .out = qkv});
}

void LayerWork::query_of(int index, std::byte* query) const {
  const LayerWeights& layer = parts_.weights.layer(index);
  const int heads = parts_.config.query_heads;
  add_norm(layer.attention_norm, AddOrder::kAddThenNorm, {});
  if (parts_.config.has_mla()) {
    return latent_work().queries(layer.mla, query, int64_t{heads} * parts_.config.head_dim);
  }
  project_heads(index, {.all = heads, .query = heads, .key = 0, .out = query});
}

LayerWork::Pending LayerWork::after_attention(int index) const {
  const LayerWeights& layer = parts_.weights.layer(index);
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  if (layer.sinks != nullptr) {
    sink_.run(TakeSinksParams{.tokens = step_.tokens,
                              .heads = config.query_heads,
                              .dim = config.value_dim(),
                              .sinks = layer.sinks,
                              .lse = activations.lse(),
                              .dtype = parts_.dtype,
                              .x = activations.attended()});
  }
  if (config.has_mla()) latent_work().values(layer.mla);
  project(layer.output, config.has_mla() ? activations.input() : activations.attended(),
          activations.result());
  add_norm(layer.mlp_norm, config.parallel ? AddOrder::kNormThenAdd : AddOrder::kAddThenNorm,
           {activations.result(), layer.output_bias, layer.attention_out_norm});
  return mlp(layer);
}

LayerWork::Pending LayerWork::mlp(const LayerWeights& layer) const {
  const Activations& activations = parts_.activations;
  if (layer.experts.present()) {
    sink_.mix_experts(layer.experts, step_.runs);
    return {activations.mixed(), nullptr, layer.mlp_out_norm};
  }
  project(layer.gate_up, activations.input(), activations.result());
  sink_.run(ActivateParams{.tokens = step_.tokens,
                           .size = parts_.config.intermediate,
                           .function = parts_.config.activation,
                           .gated = parts_.config.family->names.gated(),
                           .x = activations.result(),
                           .bias = layer.gate_up_bias,
                           .dtype = parts_.dtype,
                           .out = activations.input()});
  project(layer.down, activations.input(), activations.result());
  return {activations.result(), layer.down_bias, layer.mlp_out_norm};
}

void LayerWork::logits() const {
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  const Pending pending = after_attention(config.layers - 1);
  const auto rows = static_cast<int64_t>(step_.logit_rows.size());
  sink_.run(AddNormParams{.rows = rows,
                          .size = config.hidden,
                          .residual = activations.residual(),
                          .addend = pending.addend,
                          .bias = pending.bias,
                          .addend_norm = pending.norm,
                          .scale = config.residual_scale,
                          .tokens = inputs_.logit_rows,
                          .norm = parts_.weights.final_norm(),
                          .dtype = parts_.dtype,
                          .out = activations.input()});
  sink_.project(parts_.weights.head(), activations.input(), step_.logit_runs, config.vocab_size,
                activations.logits());
  if (const float* bias = parts_.weights.head_bias(); bias != nullptr) {
    sink_.run(AddBiasParams{
        .rows = rows, .size = config.vocab_size, .bias = bias, .x = activations.logits()});
  }
}

}  // namespace fasa
