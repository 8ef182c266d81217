// Measures steps, and plans prefetching by the measurements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "offload/step_probe.h"
#include "runtime/api/sequences/step_streams.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {

class StepTiming {
 public:
  // Both outlive it.
  StepTiming(StepStreams& streams, PrefetchControl& prefetch);

  // Reads the slot's measurement when its next step begins, which waits for the measured step
  // anyway. So predicting and measured steps alternate with the host without extra waits.
  void read(size_t slot);
  // Plans the step's predictions, once a step; measures the step if a measurement is due.
  PrefetchPlan plan(const OpenStep& step);
  // Null if the slot's step is not measured.
  StepProbe* probe(size_t slot) { return probes_[slot].layer() >= 0 ? &probes_[slot] : nullptr; }
  // Reads the rows that a measured step counted, once it is done, behind what moves rows.
  void count_rows(size_t slot, EventView done);
  void renew_events();  // streams are idle
  // The prefetch of the planned step, after all limits.
  void planned(const PrefetchPlan& plan);
  // Its tokens are committed.
  void ended(const OpenStep& step);

 private:
  StepCounters rows_of(size_t slot);
  std::vector<uint64_t> key_of(const OpenStep& step) const;

  StepEngine& engine_;
  PrefetchControl& prefetch_;
  std::array<StepProbe, 2> probes_;  // one per slot
  // Counts of each layer after the slot's measured step, and what was counted before them.
  struct Counted {
    std::vector<StepCounters> layers;
    StepCounters before;
    Event read;
  };
  std::array<Counted, 2> counted_;
  // Sequences, lengths and scratch of the next step if it follows the last one directly: then the
  // last one's lists of runners-up are valid. Empty: they are not.
  std::vector<uint64_t> expected_;
  bool lists_ = false;  // the planned step lists runners-up
  int64_t steps_ = 0;   // planned
};

}  // namespace fasa
