// Device memory that kernels of a model's own work need beside activations: the rotations'
// frequencies, scratch of projections, and what the host knows of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/llm/engine_parts.h"
#include "runtime/llm/kernel_sink.h"

namespace fasa {

class KernelMemory {
 public:
  // Throws BudgetError.
  explicit KernelMemory(const EngineParts& parts);

  const float* frequencies(size_t rotation) const { return frequencies_[rotation]; }
  const KernelSink::Scratch& scratch() const { return scratch_; }

  // As LayerEngine's.
  void reserve(const Activations& larger);
  void stage(const StepShape& step);
  // Enqueues the copy of what was staged: positions [tokens], then logit_rows.
  const int32_t* copy_staged(const StepShape& step, OperationTag tag) const;

 private:
  Device& device_;
  StreamView stream_;
  Buffer fixed_;          // frequencies, scratch
  Buffer inputs_;         // positions and logit_rows of a step
  Buffer upload_buffer_;  // the same, on the host
  std::vector<const float*> frequencies_;
  KernelSink::Scratch scratch_;
};

}  // namespace fasa
