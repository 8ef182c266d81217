// What the model computes between two attentions, as host code that streams run.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params.h"
#include "offload/operation_tag.h"
#include "runtime/base/dtype.h"
#include "runtime/llm/activations.h"
#include "runtime/llm/latent_work.h"
#include "runtime/llm/model_config.h"
#include "runtime/llm/rope_frequencies.h"
#include "runtime/llm/weights.h"

namespace fasa {

// One step's shape. Outlives the work that refers to it.
struct StepShape {
  int64_t tokens = 0;
  std::vector<int64_t> positions;   // of each token
  std::vector<int64_t> logit_rows;  // tokens whose logits are wanted, ascending
  std::vector<RowRun> runs;         // of the tokens, by their sequences' phases
  std::vector<RowRun> logit_runs;   // of the logits' rows
  Cause cause = Cause::kCompute;    // kPrefill where the step fills
};

// References: all outlive the work.
class LayerWork {
 public:
  LayerWork(const ModelConfig& config, const Weights& weights, const Activations& activations,
            DType dtype, const std::vector<Rotation>& rotations, const StepShape& step)
      : config_(config),
        weights_(weights),
        activations_(activations),
        dtype_(dtype),
        rotations_(rotations),
        step_(step) {}

  // Cosines and sines of the step's positions; the embeddings' norm, where the family has one.
  KernelWork begin() const;
  // residual -> norm, q, k and v with bias and norms, rotated -> qkv.
  KernelWork before_attention(int layer) const;
  // The query that layer `index` would compute if the residual entered it, the same bits as there:
  // residual -> norm, query projection with bias and norm, rotated -> query, [tokens, query_heads,
  // head_dim] in the model's dtype. Uses the memory of before_attention's input and result.
  KernelWork query_of(int index, std::byte* query) const;
  // attended -> output projection, residual, norm, MLP -> residual.
  KernelWork after_attention(int layer) const;
  // residual -> norm, logits of the rows that are wanted.
  KernelWork logits() const;

 private:
  // The first `width` values of a layer's projection to q, k and v, of them the first heads to
  // rotate.
  struct Projection {
    int layer;
    int64_t width;
    int query_heads;
    int key_heads;
    std::byte* out;  // [tokens, width] in the model's dtype
  };
  void normalise_input(const LayerWeights& layer) const;
  LatentWork latent_work() const { return {config_, activations_, dtype_, step_.runs}; }
  KernelWork project(const Projection& wanted) const;
  void normalise_heads(const LayerWeights& layer, const Projection& wanted, float* x) const;
  void finish_row(const Projection& wanted, int64_t row) const;
  // A sink takes its share of each head's softmax, and adds nothing to what it attends to: attended *
  // exp(lse) / (exp(lse) + exp(sink)).
  void take_sinks(const float* sinks) const;
  // The MLP's part, and what it gives joins the residual. Returns bytes as ExpertWork does.
  uint64_t mlp(const LayerWeights& layer) const;
  uint64_t experts(const LayerWeights& layer) const;

  const ModelConfig& config_;
  const Weights& weights_;
  const Activations& activations_;
  DType dtype_;
  const std::vector<Rotation>& rotations_;
  const StepShape& step_;
};

}  // namespace fasa
