// Enqueues a model's work between two attentions: as kernels if the device has them, otherwise as
// host code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/llm/compute/engine_parts.h"
#include "runtime/llm/compute/kernel_memory.h"

namespace fasa {

class LayerWork;

// Everything except stage() is enqueued on the parts' stream without waiting. Shapes of equal sizes
// enqueue equal work. The step's shape must not move between begin() and the end of the step.
class LayerEngine {
 public:
  // The parts must outlive it. Throws BudgetError.
  explicit LayerEngine(const EngineParts& parts);

  // Allocates memory for steps as large as `larger`, which will replace the parts' activations.
  // Throws BudgetError; the old memory then stays.
  void reserve(const Activations& larger);
  // Copies a step's host inputs to where its work reads them. The last step's work must be done.
  void stage(const StepShape& step);
  // Host embeddings -> residual. After stage().
  void begin(const StepShape& step);
  // LayerWork::to_attention.
  void to_attention(int layer);
  // A piece in place of begin() and to_attention(), in any order of layers: `residual` and
  // `layer_inputs` are the piece's, which layer 0 fills from the host embeddings. `experts` stand
  // for the layer's until the piece's end; null: its own. LayerWork::begin_piece, end_piece.
  void begin_piece(const StepShape& step, int layer, float* residual, float* layer_inputs,
                   const ExpertLayerWeights* experts);
  void end_piece(int layer);
  void states();  // LayerWork::states
  // LayerWork::logits -> the activations' host logits.
  void logits();

 private:
  void take_inputs(const StepShape& step, float* residual, float* layer_inputs);
  void copy_embeddings() const;
  int tag_layer(int layer) const;
  // Host code runs as one launch: fewer launches matter where each costs microseconds.
  template <typename Work>
  void enqueue(const char* name, OperationTag tag, const Work& work);

  const EngineParts parts_;
  std::optional<KernelMemory> kernels_;    // empty: host code computes
  std::vector<const float*> frequencies_;  // per rotation
  const StepShape* step_ = nullptr;        // the current step
  StepInputs inputs_;                      // of the current step
};

}  // namespace fasa
