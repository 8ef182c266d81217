#include "runtime/llm/compute/layer_work.h"

namespace fasa {

void LayerWork::begin() const {
  const ModelConfig& config = parts_.config;
  begin_positions();
  if (config.layer_input > 0) mix_layer_inputs();
  if (config.is_mtp_head()) mix_states();
  const Norm& norm = parts_.weights.embedding_norm();
  if (norm.none()) return;
  sink_.run(AddNormParams{.rows = step_.tokens,
                          .size = config.hidden,
                          .residual = inputs_.residual,
                          .norm = norm,
                          .dtype = DType::kF32,
                          .out = inputs_.residual});
}

void LayerWork::begin_positions() const {
  const Activations& activations = parts_.activations;
  const ModelConfig& config = parts_.config;
  for (int i = 0; config.rotary_dims > 0 && i < config.rotations(); ++i) {
    const auto rotation = static_cast<size_t>(i);
    sink_.run(AnglesParams{.tokens = step_.tokens,
                           .half = config.rotary_dims_of(i) / 2,
                           .positions = inputs_.positions,
                           .frequencies = inputs_.frequencies[rotation],
                           .factor = static_cast<float>(parts_.rotations[rotation].factor),
                           .cosines = activations.cosines(i),
                           .sines = activations.sines(i)});
  }
}

void LayerWork::mix_layer_inputs() const {
  constexpr float kHalfRoot = 0.70710678f;
  const Activations& activations = parts_.activations;
  const int64_t layers = parts_.config.layers;
  add_norm({}, AddOrder::kAddThenNorm, {});
  project(parts_.weights.layer_projection(), activations.input(), activations.result());
  sink_.run(AddNormParams{.rows = step_.tokens * layers,
                          .size = parts_.config.layer_input,
                          .residual = inputs_.layer_inputs,
                          .addend = activations.result(),
                          .addend_norm = parts_.weights.layer_projection_norm(),
                          .scale = kHalfRoot,
                          .norm = {},
                          .dtype = DType::kF32,
                          .out = inputs_.layer_inputs});
}

// The projection's input is a token's normed embedding, then its normed state.
void LayerWork::mix_states() const {
  const int64_t hidden = parts_.config.hidden;
  const Activations& activations = parts_.activations;
  const MtpWeights& mtp = parts_.weights.mtp();
  std::byte* out = activations.input();
  const auto norm_row = [&](float* x, const Norm& norm, DType dtype, void* to) {
    sink_.run(AddNormParams{
        .rows = 1, .size = hidden, .residual = x, .norm = norm, .dtype = dtype, .out = to});
  };
  for (int64_t token = 0; token < step_.tokens; ++token) {
    norm_row(inputs_.residual + token * hidden, mtp.token_norm, parts_.dtype, out);
    out += hidden * dtype_bytes(parts_.dtype);
    norm_row(step_.given_states + token * hidden, mtp.state_norm, parts_.dtype, out);
    out += hidden * dtype_bytes(parts_.dtype);
  }
  project(mtp.projection, activations.input(), activations.result());
  sink_.run(AddNormParams{.rows = step_.tokens,
                          .size = hidden,
                          .residual = activations.result(),
                          .norm = {},
                          .dtype = DType::kF32,
                          .out = inputs_.residual});
}

void LayerWork::add_norm(const Norm& norm, AddOrder order, const Pending& pending) const {
  sink_.run(AddNormParams{.rows = step_.tokens,
                          .size = parts_.config.hidden,
                          .residual = inputs_.residual,
                          .addend = pending.addend,
                          .bias = pending.bias,
                          .addend_norm = pending.norm,
                          .scale = parts_.config.residual_scale,
                          .factor = pending.factor,
                          .order = order,
                          .norm = norm,
                          .dtype = parts_.dtype,
                          .out = parts_.activations.input()});
}

void LayerWork::project_heads(int index, const Heads& heads) const {
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  const LayerWeights& layer = parts_.weights.layer(index);
  const HeadShape own = config.heads(index);
  const bool from_keys = config.takes_keys_as_values(index);
  const int projected = from_keys ? heads.query + heads.key : heads.all;
  sink_.project(layer.qkv, activations.input(), step_.runs, int64_t{projected} * own.key_dim,
                activations.result());
  const bool one_for_all = config.head_norm == HeadNorm::kShared;
  const bool normed = config.head_norm != HeadNorm::kNone;
  const int rotation = config.rotation(index);
  const bool rotated = rotation != kUnrotated;
  sink_.run(HeadsParams{.tokens = step_.tokens,
                        .heads = heads.all,
                        .query_heads = heads.query,
                        .key_heads = heads.key,
                        .dim = own.key_dim,
                        .rotary_dims = rotated ? own.rotary_dims : 0,
                        .rotary_layout = config.family->rotary_layout,
                        .x = activations.result(),
                        .values_from_keys = from_keys,
                        .x_stride = layer.qkv.outputs(),
                        .bias = layer.qkv_bias,
                        .query_norm = normed ? layer.query_norm : Norm{},
                        .key_norm = normed ? layer.key_norm : Norm{},
                        .value_norm = layer.value_norm,
                        .norm_stride = one_for_all ? 0 : own.key_dim,
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

void LayerWork::begin_piece(int index) const {
  index == 0 ? begin() : begin_positions();
  before_attention(index, {});
}

void LayerWork::end_piece(int index) const {
  add_norm({}, AddOrder::kAddThenNorm, after_attention(index));
}

void LayerWork::before_attention(int index, const Pending& pending) const {
  const LayerWeights& layer = parts_.weights.layer(index);
  const ModelConfig& config = parts_.config;
  add_norm(layer.attention_norm, AddOrder::kAddThenNorm, pending);
  if (config.is_linear(index)) return linear_attention(index);
  std::byte* const qkv = parts_.activations.qkv();
  if (config.family->output_gate) {
    project(layer.output_gate, parts_.activations.input(), parts_.activations.output_gates());
  }
  if (config.has_mla()) {
    const int64_t stride = config.qkv_width(index);
    latent_work().queries(layer.mla, qkv, stride);
    latent_work().keys(layer.mla, qkv + (stride - config.head_dim) * dtype_bytes(parts_.dtype),
                       stride);
    return;
  }
  const int keys = config.is_shared(index) ? 0 : config.heads(index).kv_heads;
  project_heads(
      index,
      {.all = config.query_heads + 2 * keys, .query = config.query_heads, .key = keys, .out = qkv});
}

void LayerWork::linear_attention(int index) const {
  const Activations& activations = parts_.activations;
  const LinearWeights& weights = parts_.weights.layer(index).linear;
  const LinearShape& shape = parts_.config.linear;
  std::byte* const convolved = activations.qkv();
  const int state = index - parts_.config.attention_index(index);
  project(weights.input, activations.input(), activations.result());
  project(weights.gates, activations.input(), activations.linear_gates());
  for_each_wave(step_.linear, [&](size_t first, size_t count) {
    const LinearLaunch launch = LinearLaunch::of(step_.linear.subspan(first, count));
    const std::span<const LinearPart> parts = inputs_.linear.subspan(first, count);
    sink_.run_linear(ConvolveParams{.layout = &parts_.linear,
                                    .layer = state,
                                    .parts = parts,
                                    .launch = launch,
                                    .x = activations.result(),
                                    .x_stride = weights.input.outputs(),
                                    .weights = weights.taps,
                                    .y = convolved});
    sink_.run_linear(DeltaNetParams{.layout = &parts_.linear,
                                    .layer = state,
                                    .parts = parts,
                                    .launch = launch,
                                    .y = convolved,
                                    .gates = activations.linear_gates(),
                                    .factor = weights.factor,
                                    .bias = weights.bias,
                                    .z = activations.result() + shape.channels(),
                                    .z_stride = weights.input.outputs(),
                                    .norm = weights.norm,
                                    .eps = parts_.config.norm_eps,
                                    .o = activations.result(),
                                    .out = activations.attended()});
  });
}

LayerWork::Pending LayerWork::after_attention(int index) const {
  const LayerWeights& layer = parts_.weights.layer(index);
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  if (layer.sinks != nullptr) {
    sink_.run(TakeSinksParams{.tokens = step_.tokens,
                              .heads = config.query_heads,
                              .dim = config.heads(index).value_dim,
                              .sinks = layer.sinks,
                              .lse = activations.lse(),
                              .dtype = parts_.dtype,
                              .x = activations.attended()});
  }
  if (layer.output_gate.outputs() > 0) {
    sink_.run_linear(GateParams{.tokens = step_.tokens,
                                .size = layer.output_gate.outputs(),
                                .gate = activations.output_gates(),
                                .dtype = parts_.dtype,
                                .x = activations.attended()});
  }
  if (config.has_mla()) latent_work().values(layer.mla);
  project(layer.output, config.has_mla() ? activations.input() : activations.attended(),
          activations.result());
  add_norm(layer.mlp_norm, config.parallel ? AddOrder::kNormThenAdd : AddOrder::kAddThenNorm,
           {activations.result(), layer.output_bias, layer.attention_out_norm});
  Pending pending = mlp(layer);
  if (layer.experts.present() && config.experts.beside_mlp) pending = add_experts(layer);
  if (layer.input.present()) pending = layer_input(index, pending);
  pending.factor = layer.factor;
  return pending;
}

LayerWork::Pending LayerWork::mlp(const LayerWeights& layer) const {
  const Activations& activations = parts_.activations;
  if (layer.experts.present() && !parts_.config.experts.beside_mlp) {
    sink_.mix_experts(experts_of(layer), activations.input(), step_.runs);
    return {activations.mixed(), nullptr, layer.mlp_out_norm};
  }
  project(layer.gate_up, activations.input(), activations.result());
  sink_.run(ActivateParams{.tokens = step_.tokens,
                           .size = layer.down.inputs(),
                           .function = parts_.config.activation,
                           .gated = parts_.config.family->names.gated(),
                           .x = activations.result(),
                           .bias = layer.gate_up_bias,
                           .dtype = parts_.dtype,
                           .out = activations.input()});
  project(layer.down, activations.input(), activations.result());
  return {activations.result(), layer.down_bias, layer.mlp_out_norm};
}

// After mlp(): its result and the experts' are normed and added.
LayerWork::Pending LayerWork::add_experts(const LayerWeights& layer) const {
  const Activations& activations = parts_.activations;
  const ExpertLayerWeights& experts = experts_of(layer);
  const auto store_normed = [&](float* x, const Norm& norm, DType dtype, void* out) {
    sink_.run(AddNormParams{.rows = step_.tokens,
                            .size = parts_.config.hidden,
                            .residual = x,
                            .norm = norm,
                            .dtype = dtype,
                            .out = out});
  };
  store_normed(activations.result(), experts.mlp_out_norm, DType::kF32, activations.beside());
  store_normed(inputs_.residual, experts.router_norm, parts_.dtype, activations.router_input());
  store_normed(inputs_.residual, experts.norm, parts_.dtype, activations.input());
  sink_.mix_experts(experts, activations.router_input(), step_.runs);
  sink_.run(AddNormParams{.rows = step_.tokens,
                          .size = parts_.config.hidden,
                          .residual = activations.beside(),
                          .addend = activations.mixed(),
                          .addend_norm = experts.out_norm,
                          .norm = {},
                          .dtype = DType::kF32,
                          .out = activations.beside()});
  return {activations.beside(), nullptr, layer.mlp_out_norm};
}

LayerWork::Pending LayerWork::layer_input(int index, const Pending& pending) const {
  const Activations& activations = parts_.activations;
  const LayerInputWeights& input = parts_.weights.layer(index).input;
  const int64_t width = parts_.config.layer_input;
  add_norm({}, AddOrder::kAddThenNorm, pending);
  project(input.gate, activations.input(), activations.result());
  sink_.run(ActivateParams{.tokens = step_.tokens,
                           .size = width,
                           .function = parts_.config.activation,
                           .gated = false,
                           .up = inputs_.layer_inputs + index * width,
                           .up_stride = parts_.config.layers * width,
                           .x = activations.result(),
                           .dtype = parts_.dtype,
                           .out = activations.input()});
  project(input.projection, activations.input(), activations.result());
  return {activations.result(), nullptr, input.norm};
}

void LayerWork::states() const {
  end_piece(parts_.config.layers - 1);
  sink_.run(AddNormParams{.rows = step_.tokens,
                          .size = parts_.config.hidden,
                          .residual = inputs_.residual,
                          .norm = parts_.weights.final_norm(),
                          .dtype = DType::kF32,
                          .out = step_.states});
}

void LayerWork::logits() const {
  const ModelConfig& config = parts_.config;
  const Activations& activations = parts_.activations;
  Pending pending;
  if (step_.states != nullptr) {
    states();
  } else {
    pending = after_attention(config.layers - 1);
  }
  const auto rows = static_cast<int64_t>(step_.logit_rows.size());
  sink_.run(AddNormParams{.rows = rows,
                          .size = config.hidden,
                          .residual = inputs_.residual,
                          .addend = pending.addend,
                          .bias = pending.bias,
                          .addend_norm = pending.norm,
                          .scale = config.residual_scale,
                          .factor = pending.factor,
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
