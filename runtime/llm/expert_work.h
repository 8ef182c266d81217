// Layers of experts: see ExpertShape.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/llm/activations.h"
#include "runtime/llm/model_config.h"
#include "runtime/llm/weights.h"

namespace fasa {

// The router's choice for one token: logits [shape.count] -> weights, 0 where an expert is not
// chosen. Of equal ones the first is chosen.
void route(const ExpertShape& shape, float* logits);

// Work of a step's tokens in layers with experts. All references must outlive it.
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
  };
  // The normalised input -> the activations' mixed(). Expert by expert, in their order, so that a
  // token's sum depends on no other; only experts that a token chose are read.
  Bytes run(const ExpertLayerWeights& layer) const;

 private:
  struct Chosen;  // one expert's tokens
  void choose(size_t expert, Chosen* chosen) const;
  Bytes add_routed(const ExpertLayerWeights& layer, size_t expert, const Chosen& chosen) const;
  float weight_of(int64_t token, size_t expert) const {
    return activations_.routed()[token * config_.experts.count + static_cast<int64_t>(expert)];
  }
  uint64_t add_shared(const ExpertWeights& shared) const;
  // input [rows, hidden] -> the activations' result() [rows, hidden].
  Bytes apply(const ExpertWeights& expert, bool interleaved, const std::byte* input,
              RowRuns runs) const;

  const ModelConfig& config_;
  const Activations& activations_;
  DType dtype_;
  RowRuns runs_;
  int64_t tokens_;
};

}  // namespace fasa
