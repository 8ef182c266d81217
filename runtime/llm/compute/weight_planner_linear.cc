// Layers with linear attention.
#include <fmt/format.h>

#include "runtime/llm/compute/weight_planner.h"

namespace fasa {
namespace {

constexpr std::string_view kStacked = "linear_attn.in_proj_qkvz";
constexpr std::string_view kStackedGates = "linear_attn.in_proj_ba";

}  // namespace

WeightPlan::Parts WeightPlanner::linear_inputs(int index) const {
  const LinearShape& shape = config_.linear;
  const std::string stacked = in_layer(index, kStacked) + ".weight";
  if (config_.family->linear == LinearKind::kSeparate || !plan_->has(stacked)) {
    return {{in_layer(index, "linear_attn.in_proj_qkv.weight"), shape.channels()},
            {in_layer(index, "linear_attn.in_proj_z.weight"), shape.value_width()}};
  }
  // By key head: its query, key, values and z.
  const int64_t values = shape.value_width() / shape.key_heads;
  const int64_t head_rows = 2 * (shape.key_dim + values);
  Parts parts;
  const auto add = [&](int64_t first, int64_t rows) {
    for (int64_t head = 0; head < shape.key_heads; ++head) {
      parts.push_back({stacked, rows, head * head_rows + first, shape.key_heads * head_rows});
    }
  };
  add(0, shape.key_dim);
  add(shape.key_dim, shape.key_dim);
  add(2 * int64_t{shape.key_dim}, values);
  add(2 * int64_t{shape.key_dim} + values, values);
  return parts;
}

WeightPlan::Parts WeightPlanner::linear_gates(int index) const {
  const int64_t heads = config_.linear.value_heads;
  if (config_.family->linear == LinearKind::kSeparate) {
    return {{in_layer(index, "linear_attn.in_proj_b.weight"), heads},
            {in_layer(index, "linear_attn.in_proj_a.weight"), heads}};
  }
  const std::string stacked = in_layer(index, kStackedGates) + ".weight";
  const int64_t sharing = heads / config_.linear.key_heads;
  Parts parts;
  for (const int64_t kind : {0, 1}) {
    for (int64_t head = 0; head < config_.linear.key_heads; ++head) {
      parts.push_back({stacked, sharing, (2 * head + kind) * sharing, 2 * heads});
    }
  }
  return parts;
}

// Gates are never rounded: they are few, and decide how long a state lasts.
void WeightPlanner::linear_attention(int index, LayerWeights* layer) const {
  const LinearShape& shape = config_.linear;
  LinearWeights& weights = layer->linear;
  plan_->matrix(&weights.input, linear_inputs(index), config_.hidden, all_);
  plan_->matrix(&weights.gates, linear_gates(index), config_.hidden);
  const std::string factor = in_layer(index, "linear_attn.factor");
  const std::string taps = in_layer(index, "linear_attn.conv1d.weight");
  if (plan_->has(factor)) {  // GGUF
    const int64_t extents[] = {shape.channels(), shape.taps};
    plan_->vector(&weights.taps, taps, extents);
    plan_->vector(&weights.factor, {{factor, shape.value_heads}});
  } else {
    const int64_t extents[] = {shape.channels(), 1, shape.taps};
    plan_->vector(&weights.taps, taps, extents);
    plan_->vector(&weights.factor, {{in_layer(index, "linear_attn.A_log"), shape.value_heads}},
                  {.scale = -1, .exponential = true});
  }
  plan_->vector(&weights.bias, {{in_layer(index, "linear_attn.dt_bias"), shape.value_heads}});
  plan_->vector(&weights.norm, {{in_layer(index, "linear_attn.norm.weight"), shape.value_dim}});
  plan_->matrix(&layer->output, {{in_layer(index, "linear_attn.out_proj.weight"), config_.hidden}},
                shape.value_width(), all_);
}

}  // namespace fasa
