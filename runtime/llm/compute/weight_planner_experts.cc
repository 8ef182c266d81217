// Layers with experts.
#include <fmt/format.h>

#include <cmath>

#include "runtime/llm/compute/weight_planner.h"

namespace fasa {
namespace {

constexpr std::string_view kGateUp = "gate_up_proj";

}  // namespace

void WeightPlanner::expert(const std::string& prefix, int64_t intermediate,
                           const WeightPlan::MatrixOptions& options, ExpertWeights* weights) const {
  const auto tensor = [&](std::string_view name) {
    return fmt::format("{}{}.weight", prefix, name);
  };
  plan_->matrix(
      &weights->gate_up,
      {{tensor(names_.expert_gate), intermediate}, {tensor(names_.expert_up), intermediate}},
      config_.hidden, options);
  plan_->matrix(&weights->down, {{tensor(names_.expert_down), config_.hidden}}, intermediate,
                options);
  if (!config_.family->expert_bias) return;
  const auto bias = [&](std::string_view name) { return fmt::format("{}{}.bias", prefix, name); };
  plan_->vector(&weights->gate_up_bias,
                {{bias(names_.expert_gate), intermediate}, {bias(names_.expert_up), intermediate}});
  plan_->vector(&weights->down_bias, {{bias(names_.expert_down), config_.hidden}});
}

void WeightPlanner::one_of_all(const std::string& tensor, size_t which, int64_t outputs,
                               int64_t inputs, Matrix* matrix, const float** bias) const {
  const int64_t count = config_.experts.count;
  const auto index = static_cast<int64_t>(which);
  const std::string packed = tensor + ".weight";
  if (plan_->has(packed)) {
    plan_->matrix(matrix, {{packed, outputs, index * outputs, count * outputs}}, inputs,
                  {.rounding = {}, .space = routed_.space});
  } else {
    plan_->transposed(matrix, {tensor, inputs, index * inputs, count * inputs, count}, outputs,
                      routed_.space);
  }
  plan_->vector(bias, {{tensor + "_bias", outputs, index * outputs, count * outputs, count}});
}

bool WeightPlanner::has_stacked_experts(int index) const {
  if (names_.expert_gate_up.empty()) return false;
  const std::string first =
      fmt::format("{}.{}", in_layer(index, names_.experts), names_.expert_gate_up);
  return plan_->has(first) || plan_->has(first + ".weight");
}

void WeightPlanner::stacked_experts(int index, ExpertLayerWeights* layer) const {
  const ExpertShape& shape = config_.experts;
  layer->interleaved = true;
  const std::string root = in_layer(index, names_.experts) + ".";
  for (size_t i = 0; i < layer->routed.size(); ++i) {
    ExpertWeights& expert = layer->routed[i];
    one_of_all(root + std::string(names_.expert_gate_up), i, 2 * int64_t{shape.intermediate},
               config_.hidden, &expert.gate_up, &expert.gate_up_bias);
    one_of_all(root + std::string(names_.expert_down), i, config_.hidden, shape.intermediate,
               &expert.down, &expert.down_bias);
  }
}

bool WeightPlanner::has_experts_by_rows(int index) const {
  const std::string all = fmt::format("{}.{}", in_layer(index, names_.experts), kGateUp);
  return names_.expert_gate_up.empty() && (plan_->has(all) || plan_->has(all + ".weight"));
}

void WeightPlanner::experts_by_rows(int index, ExpertLayerWeights* layer) const {
  const ExpertShape& shape = config_.experts;
  const auto of_all = [&](std::string_view name, size_t which, int64_t outputs, int64_t inputs,
                          Matrix* matrix) {
    const std::string root = in_layer(index, names_.experts);
    const std::string own = fmt::format("{}.{}.{}.weight", root, which, name);
    if (plan_->has(own)) return plan_->matrix(matrix, {{own, outputs}}, inputs, routed_);  // GGUF
    const int64_t first = static_cast<int64_t>(which) * outputs;
    const std::string all = fmt::format("{}.{}", root, name);
    const std::string packed = all + ".weight";  // FP8: rows of all experts
    const int64_t rows = shape.count * outputs;
    if (plan_->has(packed)) {
      return plan_->matrix(matrix, {{packed, outputs, first, rows}}, inputs, routed_);
    }
    plan_->matrix(matrix, {{all, outputs, first, rows, shape.count}}, inputs, routed_);
  };
  for (size_t i = 0; i < layer->routed.size(); ++i) {
    ExpertWeights& expert = layer->routed[i];
    of_all(kGateUp, i, 2 * int64_t{shape.intermediate}, config_.hidden, &expert.gate_up);
    of_all(names_.expert_down, i, config_.hidden, shape.intermediate, &expert.down);
  }
}

void WeightPlanner::experts_beside(int index, ExpertLayerWeights* layer) const {
  const ExpertShape& shape = config_.experts;
  experts_by_rows(index, layer);
  layer->router_norm = {.kind = NormKind::kRms, .eps = config_.norm_eps};
  plan_->vector(&layer->router_norm.weight, {{bare(index, names_.router_scale), config_.hidden}},
                {.base = 0, .scale = 1 / std::sqrt(static_cast<float>(config_.hidden))});
  plan_->vector(&layer->scale, {{bare(index, names_.expert_scale), shape.count}});
  layer_norm(index, names_.beside_mlp_out_norm, &layer->mlp_out_norm);
  layer_norm(index, names_.beside_norm, &layer->norm);
  layer_norm(index, names_.beside_out_norm, &layer->out_norm);
}

void WeightPlanner::experts(int index, ExpertLayerWeights* layer) const {
  layer->on_host = routed_.space == MemorySpace::kHost;
  const ExpertShape& shape = config_.experts;
  plan_->matrix(&layer->router, {{in_layer(index, names_.router) + ".weight", shape.count}},
                config_.hidden);
  layer->routed.resize(static_cast<size_t>(shape.count));
  if (config_.family->expert_bias) {
    plan_->vector(&layer->router_bias, {{in_layer(index, names_.router) + ".bias", shape.count}});
  }
  if (!names_.router_correction.empty()) {
    plan_->vector(&layer->router_correction,
                  {{bare(index, names_.router_correction), shape.count}});
  }
  if (shape.beside_mlp) return experts_beside(index, layer);
  if (has_stacked_experts(index)) return stacked_experts(index, layer);
  const bool by_rows = has_experts_by_rows(index);
  if (by_rows) experts_by_rows(index, layer);
  for (size_t i = 0; i < layer->routed.size() && !by_rows; ++i) {
    expert(fmt::format("{}.{}.", in_layer(index, names_.experts), i), shape.intermediate, routed_,
           &layer->routed[i]);
  }
  if (shape.shared_intermediate > 0) {
    expert(in_layer(index, names_.shared) + ".", shape.shared_intermediate, all_, &layer->shared);
    if (!names_.shared_gate.empty()) {
      plan_->matrix(&layer->shared_gate, {{in_layer(index, names_.shared_gate) + ".weight", 1}},
                    config_.hidden);
    }
  }
}

}  // namespace fasa
