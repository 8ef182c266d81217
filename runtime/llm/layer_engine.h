// Enqueues a model's work between two attentions: as kernels if the device has them, else as host
// code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/llm/engine_parts.h"
#include "runtime/llm/kernel_memory.h"

namespace fasa {

class LayerWork;

// Everything except stage() is enqueued on the parts' stream without waiting; equal sizes in the
// shapes make equal work. The step's shape must not move between begin() and the end of the step.
class LayerEngine {
 public:
  // The parts outlive it. Throws BudgetError.
  explicit LayerEngine(const EngineParts& parts);

  // Room for steps as large as these activations, which will take the place of the parts' ones.
  // Throws BudgetError; the old room stays.
  void reserve(const Activations& larger);
  // Host data of a step to where its work will read it. The last step's work is done.
  void stage(const StepShape& step);
  // Host embeddings -> residual. After stage().
  void begin(const StepShape& step);
  // LayerWork::to_attention.
  void to_attention(int layer);
  // LayerWork::query_of, after to_attention() of an earlier layer, which `tag` names.
  void query_of(int layer, std::byte* query, OperationTag tag);
  // LayerWork::logits -> the activations' host logits.
  void logits();

 private:
  // One launch where host code works: few launches matter where a launch costs microseconds.
  template <typename Work>
  void enqueue(const char* name, OperationTag tag, const Work& work);

  const EngineParts parts_;
  std::optional<KernelMemory> kernels_;    // none: host code works
  std::vector<const float*> frequencies_;  // of each rotation
  const StepShape* step_ = nullptr;        // under way
  StepInputs inputs_;                      // of that
};

}  // namespace fasa
