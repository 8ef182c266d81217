// Device memory of a model's own kernels, besides activations: rotation frequencies, scratch of
// projections, and a step's inputs from the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/llm/compute/engine_parts.h"
#include "runtime/llm/compute/kernel_sink.h"

namespace fasa {

class KernelMemory {
 public:
  // Throws BudgetError.
  explicit KernelMemory(const EngineParts& parts);

  const float* frequencies(size_t rotation) const { return frequencies_[rotation]; }
  const KernelSink::Scratch& scratch() const { return scratch_; }

  // As LayerEngine::reserve.
  void reserve(const Activations& larger);
  void stage(const StepShape& step);
  // Enqueues the upload of the staged inputs, and returns where they will be, without frequencies.
  StepInputs copy_staged(const StepShape& step, OperationTag tag) const;

 private:
  Device& device_;
  bool linear_;  // the model has layers with linear attention
  StreamView stream_;
  Buffer fixed_;          // frequencies, scratch
  Buffer inputs_;         // of a step: linear parts, positions, logit_rows
  Buffer upload_buffer_;  // their copy on the host
  std::vector<const float*> frequencies_;
  KernelSink::Scratch scratch_;
};

}  // namespace fasa
