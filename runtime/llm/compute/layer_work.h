// A model's computation between two attentions, as calls into a sink.
#pragma once

#include <cstdint>

#include "runtime/llm/compute/engine_parts.h"
#include "runtime/llm/compute/latent_work.h"
#include "runtime/llm/compute/work_sink.h"

namespace fasa {

// Holds references: all arguments must outlive it.
class LayerWork {
 public:
  LayerWork(const EngineParts& parts, const StepShape& step, const StepInputs& inputs,
            WorkSink& sink)
      : parts_(parts), step_(step), inputs_(inputs), sink_(sink) {}

  // A result not yet added to the residual: of a projection, with its bias and norm.
  struct Pending {
    const float* addend = nullptr;
    const float* bias = nullptr;
    Norm norm = {};
    const float* factor = nullptr;  // of the residual, after the addition
  };
  // Enqueues the rest of the previous layer after its attention (or begin()), then
  // before_attention(), or a layer's linear attention.
  void to_attention(int layer) const;
  // The same, bit for bit, for a piece of a chunk, whose residual is complete before each layer:
  // what comes before the layer's attention, and the rest of the layer, added to the residual.
  void begin_piece(int layer) const;
  void end_piece(int layer) const;
  // Computes cosines and sines of the step's positions, and the norm of the embeddings if the
  // family has one.
  void begin() const;
  // Residual -> norm, q, k and v with bias and norms, rotated -> the activations' qkv().
  void before_attention(int layer, const Pending& pending) const;
  // Everything after the last attention: the step's states, which are wanted.
  void states() const;
  // The same, if they are wanted, and logits() of the requested rows, in the activations.
  void logits() const;

 private:
  // Heads of a layer's projection. The first `all`: query heads, then key heads to rotate.
  struct Heads {
    int all;
    int query;
    int key;
    std::byte* out;  // [tokens, all, head_dim] in the model's dtype
  };
  void begin_positions() const;
  // Embeddings and given states -> the residual of a head of multi-token prediction.
  void mix_states() const;
  // Embeddings -> the input per layer, from the tables' parts.
  void mix_layer_inputs() const;
  const ExpertLayerWeights& experts_of(const LayerWeights& layer) const {
    return inputs_.experts != nullptr ? *inputs_.experts : layer.experts;
  }
  void add_norm(const Norm& norm, AddOrder order, const Pending& pending) const;
  void project(const Matrix& matrix, const std::byte* x, float* y) const {
    sink_.project(matrix, x, step_.runs, matrix.outputs(), y);
  }
  void project_heads(int layer, const Heads& heads) const;
  // The normalised input -> convolution, delta net -> the activations' attended().
  void linear_attention(int layer) const;
  // attended -> output projection, residual, norm, MLP. Returns the MLP's result as pending.
  Pending after_attention(int layer) const;
  Pending mlp(const LayerWeights& layer) const;
  Pending add_experts(const LayerWeights& layer) const;
  Pending layer_input(int index, const Pending& pending) const;
  LatentWork latent_work() const { return {parts_, step_.runs, sink_}; }

  const EngineParts& parts_;
  const StepShape& step_;
  const StepInputs& inputs_;
  WorkSink& sink_;
};

}  // namespace fasa
