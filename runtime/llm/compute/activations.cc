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

template <typename Take>
void Activations::lay_out_experts(const ModelConfig& config, DType dtype, PanelOrder order,
                                  const Take& take) {
  const ExpertShape& experts = config.experts;
  const int64_t width = std::max(expert_rows(experts, order) * experts.intermediate,
                                 int64_t{experts.shared_intermediate});
  constexpr int kFloat = sizeof(float);
  routed_ = take(tokens_ * experts.count, kFloat);
  mixed_ = take(tokens_ * config.hidden, kFloat);
  activated_ = take(tokens_ * width, dtype_bytes(dtype));
  if (experts.beside_mlp) {
    beside_ = take(tokens_ * config.hidden, kFloat);
    router_input_ = take(tokens_ * config.hidden, dtype_bytes(dtype));
  }
  if (order == PanelOrder::kPacked) {
    gathered_ = take(tokens_ * config.hidden, dtype_bytes(dtype));
    return;
  }
  pair_count_ = tokens_ * experts.chosen;
  chosen_ = take(2 * pair_count_, sizeof(int32_t));
  pairs_ = take(3 * pair_count_ + experts.count + 1, sizeof(int32_t));
}

ExpertSpace Activations::experts() const {
  auto* const chosen = at<int32_t>(chosen_);
  auto* const pairs = at<int32_t>(pairs_);
  return {.chosen = chosen,
          .weights = reinterpret_cast<float*>(chosen + pair_count_),
          .experts = pairs,
          .rows = pairs + pair_count_,
          .first = pairs + 3 * pair_count_,
          .places = pairs + 2 * pair_count_};
}

size_t Activations::lay_out(const ModelConfig& config, DType dtype, PanelOrder order) {
  const int64_t tokens = tokens_;
  const int64_t hidden = config.hidden;
  const LatentShape& mla = config.mla;
  const int64_t heads = config.query_heads;
  const int64_t qkv = config.max_qkv_width();
  const LinearShape& linear = config.linear;
  const int64_t attended =
      std::max(heads * std::max(config.value_dim(), config.window_heads.value_dim),
               int64_t{linear.value_width()});
  const int64_t linear_inputs = linear.layers > 0 ? linear.channels() + linear.value_width() : 0;
  const int64_t layer_inputs = config.layer_inputs();
  const int64_t widest_in =
      std::max({config.is_mtp_head() ? 2 * hidden : hidden, attended, heads * mla.value,
                int64_t{config.max_mlp_width()}, int64_t{config.layer_input}});
  const int64_t widest_out = std::max({hidden, qkv, heads * (mla.plain + config.rotary_dims),
                                       int64_t{mla.query_rank}, 2 * int64_t{config.max_mlp_width()},
                                       expert_outputs(config, order), layer_inputs, linear_inputs});
  size_t bytes = 0;
  const auto take = [&](int64_t elements, int element_bytes) {
    const size_t offset = bytes;
    bytes += (static_cast<size_t>(elements * element_bytes) + 63) / 64 * 64;
    return offset;
  };
  constexpr int kFloat = sizeof(float);
  residual_ = take(tokens * hidden, kFloat);
  result_ = take(tokens * widest_out, kFloat);
  input_ = take(tokens * widest_in, dtype_bytes(dtype));
  qkv_ = take(tokens * qkv, dtype_bytes(dtype));
  qkv_end_ = bytes;
  layer_inputs_ = take(tokens * layer_inputs, kFloat);
  attended_ = take(tokens * attended, dtype_bytes(dtype));
  linear_gates_ = take(tokens * 2 * linear.value_heads, kFloat);
  output_gates_ =
      take(config.family->output_gate ? tokens * heads * config.max_head_dim() : 0, kFloat);
  with_lse_ = config.has_sinks();
  if (with_lse_) lse_ = take(tokens * heads, kFloat);
  // Host code handles one head at a time, kernels handle all heads at once.
  const int64_t at_once = order == PanelOrder::kPacked ? 1 : heads;
  const int64_t head_in = std::max(at_once * mla.plain, int64_t{mla.latent});
  head_input_ = take(tokens * std::max(head_in, int64_t{mla.query_rank}), dtype_bytes(dtype));
  head_result_ = take(tokens * at_once * std::max(mla.latent, mla.value), kFloat);
  angles_ = tokens * std::max(config.rotary_dims, config.window_heads.rotary_dims) / 2;
  cosines_ = take(config.rotations() * angles_, kFloat);
  sines_ = take(config.rotations() * angles_, kFloat);
  if (config.experts.count > 0) lay_out_experts(config, dtype, order, take);
  logits_ = take(rows_ * config.vocab_size, kFloat);
  return bytes;
}

uint64_t Activations::device_bytes(const ModelConfig& config, DType dtype, PanelOrder order,
                                   int64_t tokens, int64_t rows) {
  Activations activations;
  activations.tokens_ = tokens;
  activations.rows_ = rows;
  return activations.lay_out(config, dtype, order);
}

Activations::Activations(Device& device, const ModelConfig& config, DType dtype, int64_t tokens,
                         int64_t rows)
    : tokens_(tokens), rows_(rows) {
  const bool kernels = device.traits().model_calls;
  const size_t bytes = lay_out(config, dtype, kernels ? PanelOrder::kPlain : PanelOrder::kPacked);
  constexpr int64_t kFloat = sizeof(float);
  device_ = device.allocate(MemorySpace::kDevice, bytes, "activations");
  host_ = device.allocate(MemorySpace::kHost, static_cast<size_t>(tokens * config.hidden * kFloat),
                          "embeddings of a step");
  host_layer_inputs_ = device.allocate(MemorySpace::kHost,
                                       static_cast<size_t>(tokens * config.layer_inputs() * kFloat),
                                       "inputs per layer of a step");
  host_logits_ = device.allocate(MemorySpace::kHost,
                                 static_cast<size_t>(rows * config.vocab_size * kFloat), "logits");
}

}  // namespace fasa
