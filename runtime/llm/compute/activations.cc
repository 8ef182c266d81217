#include "runtime/llm/compute/activations.h"

#include <algorithm>

namespace fasa {

namespace {

// Rows per token in one expert product: all chosen experts at once, or one expert at a time.
int64_t expert_rows(const ExpertShape& experts, PanelOrder order) {
  return order == PanelOrder::kPacked ? 1 : experts.chosen;
}

int64_t expert_outputs(const ModelConfig& config, PanelOrder order) {
  const ExpertShape& experts = config.experts;
  const int64_t routed =
      expert_rows(experts, order) * std::max(2 * experts.intermediate, config.hidden);
  return std::max(routed, 2 * int64_t{experts.shared_intermediate});
}

}  // namespace

size_t Activations::Offsets::take(int64_t elements, int64_t element_bytes) {
  const size_t offset = bytes;
  bytes += (static_cast<size_t>(elements * element_bytes) + 63) / 64 * 64;
  return offset;
}

void Activations::Offsets::add_experts(const ModelConfig& config, DType dtype, PanelOrder order,
                                       int64_t tokens) {
  const ExpertShape& experts = config.experts;
  const int64_t width = std::max(expert_rows(experts, order) * experts.intermediate,
                                 int64_t{experts.shared_intermediate});
  constexpr int kFloat = sizeof(float);
  routed = take(tokens * experts.count, kFloat);
  mixed = take(tokens * config.hidden, kFloat);
  activated = take(tokens * width, dtype_bytes(dtype));
  if (experts.beside_mlp) {
    beside = take(tokens * config.hidden, kFloat);
    router_input = take(tokens * config.hidden, dtype_bytes(dtype));
  }
  if (order == PanelOrder::kPacked) {
    gathered = take(tokens * config.hidden, dtype_bytes(dtype));
    return;
  }
  pair_count = tokens * experts.chosen;
  chosen = take(2 * pair_count, sizeof(int32_t));
  pairs = take(3 * pair_count + experts.count + 1, sizeof(int32_t));
}

Activations::Offsets::Offsets(const ModelConfig& config, DType dtype, PanelOrder order,
                              int64_t tokens, int64_t rows) {
  const int64_t hidden = config.hidden;
  const LatentShape& mla = config.mla;
  const int64_t heads = config.query_heads;
  const int64_t qkv_width = config.max_qkv_width();
  const LinearShape& linear = config.linear;
  const int64_t attended_width =
      std::max(heads * std::max(config.value_dim(), config.window_heads.value_dim),
               int64_t{linear.value_width()});
  const int64_t linear_inputs = linear.layers > 0 ? linear.channels() + linear.value_width() : 0;
  const int64_t layer_widths = config.layer_inputs();
  const int64_t widest_in =
      std::max({config.is_mtp_head() ? 2 * hidden : hidden, attended_width, heads * mla.value,
                int64_t{config.max_mlp_width()}, int64_t{config.layer_input}});
  const int64_t widest_out = std::max({hidden, qkv_width, heads * (mla.plain + config.rotary_dims),
                                       int64_t{mla.query_rank}, 2 * int64_t{config.max_mlp_width()},
                                       expert_outputs(config, order), layer_widths, linear_inputs});
  constexpr int kFloat = sizeof(float);
  residual = take(tokens * hidden, kFloat);
  result = take(tokens * widest_out, kFloat);
  input = take(tokens * widest_in, dtype_bytes(dtype));
  qkv = take(tokens * qkv_width, dtype_bytes(dtype));
  qkv_end = bytes;
  layer_inputs = take(tokens * layer_widths, kFloat);
  attended = take(tokens * attended_width, dtype_bytes(dtype));
  linear_gates = take(tokens * 2 * linear.value_heads, kFloat);
  output_gates =
      take(config.family->output_gate ? tokens * heads * config.max_head_dim() : 0, kFloat);
  with_lse = config.has_sinks();
  if (with_lse) lse = take(tokens * heads, kFloat);
  // Host code handles one head at a time, kernels handle all heads at once.
  const int64_t at_once = order == PanelOrder::kPacked ? 1 : heads;
  const int64_t head_in = std::max(at_once * mla.plain, int64_t{mla.latent});
  head_input = take(tokens * std::max(head_in, int64_t{mla.query_rank}), dtype_bytes(dtype));
  head_result = take(tokens * at_once * std::max(mla.latent, mla.value), kFloat);
  angles = tokens * std::max(config.rotary_dims, config.window_heads.rotary_dims) / 2;
  cosines = take(config.rotations() * angles, kFloat);
  sines = take(config.rotations() * angles, kFloat);
  if (config.experts.count > 0) add_experts(config, dtype, order, tokens);
  logits = take(rows * config.vocab_size, kFloat);
}

ExpertSpace Activations::experts() const {
  auto* const chosen = at<int32_t>(at_.chosen);
  auto* const pairs = at<int32_t>(at_.pairs);
  return {.chosen = chosen,
          .weights = reinterpret_cast<float*>(chosen + at_.pair_count),
          .experts = pairs,
          .rows = pairs + at_.pair_count,
          .first = pairs + 3 * at_.pair_count,
          .places = pairs + 2 * at_.pair_count};
}

uint64_t Activations::device_bytes(const ModelConfig& config, DType dtype, PanelOrder order,
                                   int64_t tokens, int64_t rows) {
  return Offsets(config, dtype, order, tokens, rows).bytes;
}

Activations::Activations(Device& device, const ModelConfig& config, DType dtype, int64_t tokens,
                         int64_t rows)
    : tokens_(tokens),
      rows_(rows),
      at_(config, dtype, device.traits().model_calls ? PanelOrder::kPlain : PanelOrder::kPacked,
          tokens, rows) {
  constexpr int64_t kFloat = sizeof(float);
  device_ = device.allocate(MemorySpace::kDevice, at_.bytes, "activations");
  host_ = device.allocate(MemorySpace::kHost, static_cast<size_t>(tokens * config.hidden * kFloat),
                          "embeddings of a step");
  host_layer_inputs_ = device.allocate(MemorySpace::kHost,
                                       static_cast<size_t>(tokens * config.layer_inputs() * kFloat),
                                       "inputs per layer of a step");
  host_logits_ = device.allocate(MemorySpace::kHost,
                                 static_cast<size_t>(rows * config.vocab_size * kFloat), "logits");
}

}  // namespace fasa
