// Combines a family's tensor names with one model's shapes: which rows of which tensors make up a
// matrix or vector.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/config/weight_options.h"
#include "runtime/llm/compute/weight_plan.h"

namespace fasa {

std::optional<Rounding> rounding_of(WeightRounding to, int group);

class WeightPlanner {
 public:
  // All must outlive it. `layer`: begins the names of the only layer's tensors; "": as the family
  // names its layers.
  WeightPlanner(const ModelConfig& config, const WeightOptions& options, WeightPlan* plan,
                std::string layer = "");

  const std::string& root() const { return root_; }
  void layer(int index, LayerWeights* layer) const;

  // `tensor`: without ".weight" and ".bias". Weights are multiplied by `scale`.
  void norm(const std::string& tensor, int64_t size, Norm* norm, float scale = 1) const;

  WeightPlan::Part first_key(int index) const;
  std::string in_root(std::string_view name) const { return root_ + std::string(name); }
  // Without ".weight" and ".bias".
  std::string head() const;

 private:
  using Parts = WeightPlan::Parts;

  std::string in_layer(int index, std::string_view name) const;
  void layer_norm(int index, std::string_view name, Norm* norm) const;
  // The name of a tensor without a kind; in GGUF files all have one.
  std::string bare(int index, std::string_view name) const;
  int64_t query_rows(int index) const;
  int64_t key_rows(int index) const;
  size_t first_key_part() const;

  // All queries, then all keys, then all values, for any layout in the file.
  Parts qkv(int index, std::string_view kind) const;
  void head_norm(const std::string& tensor, int heads, int64_t dim, Norm* norm) const;
  void attention(int index, LayerWeights* layer) const;
  // Rows of the query projection: of queries, or of the gates beside them.
  Parts queries(int index, const std::string& tensor, bool gates) const;

  // Files may hold keys and values of layers that use another layer's.
  void ignore_shared(int index) const;
  void layer_input(int index, LayerInputWeights* weights) const;
  void latent_attention(int index, LayerWeights* layer) const;
  Parts gate_up(int index, std::string_view kind) const;

  // `prefix` ends with a dot.
  void expert(const std::string& prefix, int64_t intermediate,
              const WeightPlan::MatrixOptions& options, ExpertWeights* weights) const;

  // A matrix of one expert in a tensor that holds all experts. Packed ones have rows of inputs like
  // other matrices; plain ones are transposed.
  void one_of_all(const std::string& tensor, size_t which, int64_t outputs, int64_t inputs,
                  Matrix* matrix, const float** bias) const;

  // GGUF files are read as separate experts.
  bool has_stacked_experts(int index) const;
  void stacked_experts(int index, ExpertLayerWeights* layer) const;
  void linear_attention(int index, LayerWeights* layer) const;
  // Queries, keys and values, then z.
  Parts linear_inputs(int index) const;
  Parts linear_gates(int index) const;  // b, then a

  // Experts of one tensor each for gate and up, and down, [experts, outputs, inputs].
  bool has_experts_by_rows(int index) const;
  void experts_by_rows(int index, ExpertLayerWeights* layer) const;
  void experts_beside(int index, ExpertLayerWeights* layer) const;

  // The router is never rounded: it decides which weights are read.
  void experts(int index, ExpertLayerWeights* layer) const;
  void mlp(int index, LayerWeights* layer) const;

  const ModelConfig& config_;
  const TensorNames& names_;
  std::string root_;
  std::string layer_;  // begins the names of the only layer's tensors; "": those of the family
  WeightPlan::MatrixOptions all_;
  WeightPlan::MatrixOptions routed_;  // for routed experts
  WeightPlan* plan_;
};

}  // namespace fasa
