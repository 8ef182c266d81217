// References that the parts of a Runtime hold to each other.
#pragma once

#include <optional>

#include "offload/device.h"
#include "runtime/api/sequences/open_step.h"
#include "runtime/api/sequences/sequence_table.h"
#include "runtime/api/sequences/step_streams.h"
#include "scheduler/prefetch/prefetch_control.h"
#include "scheduler/step_scratch.h"

namespace fasa {

// All of them outlive the holder.
struct RuntimeParts {
  Device& device;
  const StepSettings& settings;
  SequenceTable& sequences;
  StepStreams& streams;
  StepScratch& scratch;
  PrefetchControl& prefetch;
  std::optional<OpenStep>& step;
  bool& reclaim_paused;  // the runtime must not free memory on request
};

}  // namespace fasa
