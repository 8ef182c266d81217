// Runs a selection for one layer of a step instead of the select kernel, on the cpu device.
// Allocates during the step: for comparison, not for serving.
#pragma once

#include "kernels/params.h"
#include "scheduler/step/step_context.h"
#include "scheduler/step/step_scratch.h"
#include "scheduler/step_settings.h"

namespace fasa {

struct SelectionStage {
  const StepSettings& settings;
  const StepContext& step;
  SelectParams params;

  // The sets of the decode sequences.
  KernelWork select() const;
  // Records the prefill sequences' queries, if the selection has memory.
  KernelWork observe_prefill() const;

 private:
  void record(StepMode mode) const;
  void choose(int sequence, int head) const;
};

}  // namespace fasa
