// What the model computes between two attentions, as host code that streams run.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params.h"
#include "offload/operation_tag.h"
#include "runtime/base/dtype.h"
#include "runtime/llm/activations.h"
#include "runtime/llm/model_config.h"
#include "runtime/llm/weights.h"

namespace fasa {

// One step's shape. Outlives the work that refers to it.
struct StepShape {
  int64_t tokens = 0;
  std::vector<int64_t> positions;   // of each token
  std::vector<int64_t> logit_rows;  // tokens whose logits are wanted, ascending
  Cause cause = Cause::kCompute;    // kPrefill where the step fills
};

// References: all outlive the work.
class LayerWork {
 public:
  LayerWork(const ModelConfig& config, const Weights& weights, const Activations& activations,
            DType dtype, const std::vector<float>& frequencies, const StepShape& step)
      : config_(config),
        weights_(weights),
        activations_(activations),
        dtype_(dtype),
        frequencies_(frequencies),
        step_(step) {}

  // Cosines and sines of the step's positions.
  KernelWork angles() const;
  // residual -> norm, q, k and v with bias and norms, rotated -> qkv.
  KernelWork before_attention(int layer) const;
  // attended -> output projection, residual, norm, MLP -> residual.
  KernelWork after_attention(int layer) const;
  // residual -> norm, logits of the rows that are wanted.
  KernelWork logits() const;

 private:
  void finish_qkv(const LayerWeights& layer, int64_t row) const;
  void mlp(const LayerWeights& layer) const;

  const ModelConfig& config_;
  const Weights& weights_;
  const Activations& activations_;
  DType dtype_;
  const std::vector<float>& frequencies_;
  const StepShape& step_;
};

}  // namespace fasa
