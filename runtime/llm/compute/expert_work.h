// Layers with experts on the host: see ExpertShape.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/llm/compute/activations.h"
#include "runtime/llm/compute/weights.h"
#include "runtime/llm/config/model_config.h"

namespace fasa {

// The router's choice for one token, in place: logits [shape.count] -> weights, 0 for experts not
// chosen. Ties go to the lower index. `scale` [shape.count] multiplies the weights, or null;
// `correction` [shape.count] is added to the shares for the choice alone, or null.
void route(const ExpertShape& shape, float* logits, const float* scale = nullptr,
           const float* correction = nullptr);

// A step's work in layers with experts. Holds references: all arguments must outlive it.
class ExpertWork {
 public:
  ExpertWork(const ModelConfig& config, const Activations& activations, DType dtype, RowRuns runs)
      : config_(config),
        activations_(activations),
        dtype_(dtype),
        runs_(runs),
        tokens_(rows_of(runs)) {}

  struct Bytes {          // read and written
    uint64_t routed = 0;  // weights of experts that were chosen
    uint64_t other = 0;
    uint64_t operations = 0;  // beside them, of the products
    Bytes& operator+=(const Bytes& more);
  };
  // The normalised input -> the activations' mixed(). Experts run in index order, so a token's sum
  // does not depend on other tokens; weights of unchosen experts are not read.
  Bytes run(const ExpertLayerWeights& layer, const std::byte* router_input) const;

 private:
  struct Chosen;  // one expert's tokens
  void choose(size_t expert, Chosen* chosen) const;
  Bytes add_routed(const ExpertLayerWeights& layer, size_t expert, const Chosen& chosen) const;
  float weight_of(int64_t token, size_t expert) const {
    return activations_.routed()[token * config_.experts.count + static_cast<int64_t>(expert)];
  }
  Bytes add_shared(const ExpertLayerWeights& layer) const;
  // input [rows, hidden] -> the activations' result() [rows, hidden]. `shares`: as in
  // ActivateParams.
  Bytes apply(const ExpertWeights& expert, bool interleaved, const std::byte* input, RowRuns runs,
              const float* shares = nullptr) const;

  const ModelConfig& config_;
  const Activations& activations_;
  DType dtype_;
  RowRuns runs_;
  int64_t tokens_;
};

}  // namespace fasa
