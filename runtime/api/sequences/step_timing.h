// Measured steps, and what prefetching is planned by them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/api/sequences/runtime_parts.h"
#include "scheduler/prefetch/prefetch_planner.h"
#include "scheduler/step_probe.h"

namespace fasa {

class StepTiming {
 public:
  explicit StepTiming(const RuntimeParts& parts);

  // Steps that predict and steps that were measured take turns with the host by themselves: what a
  // slot measured is read when its next step begins, which has to wait for that step anyway.
  void read(size_t slot);
  // What the step predicts; measures it where that is due.
  PrefetchPlan plan(const OpenStep& step, int32_t step_number);
  // Null where the slot's step is not measured.
  StepProbe* probe(size_t slot) { return probes_[slot].layer() >= 0 ? &probes_[slot] : nullptr; }
  void renew_events();  // streams are idle

 private:
  const RuntimeParts parts_;
  std::array<StepProbe, 2> probes_;  // of the slots' steps
  std::array<int, 2> depths_{};
};

}  // namespace fasa
