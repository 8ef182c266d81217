// The parameters of a step that kernels read: its sequences, its number, and what stays from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/api/sequences/runtime_parts.h"

namespace fasa {

class StepDescriber {
 public:
  // Step numbers run from 1 to `max_steps`. Throws UsageError where that or the dimensions are wrong, and
  // BudgetError.
  StepDescriber(const RuntimeParts& parts, const Geometry& geometry,
                const std::vector<int16_t>& slice_dims, int32_t max_steps);

  // The next step's number; when the numbers have run out, hot rows start empty again.
  int32_t step_number() const { return step_number_; }
  void make_room();
  void advance() { ++step_number_; }

  // Enqueues tables and repairs of the step's sequences, whose memory is there, and fills in what
  // pipeline and kernels read.
  void describe(OpenStep& step, StepCounters* counters);
  // Where a sequence decodes several tokens.
  static void describe_each(OpenStep& step);
  uint64_t bytes() const { return slice_dims_.bytes() + slopes_.bytes(); }

 private:
  void upload_slopes(const Geometry& geometry);
  void list(OpenStep& step) const;
  void restore(const OpenStep& step) const;

  const RuntimeParts parts_;
  Buffer slice_dims_;
  Buffer slopes_;
  const int32_t max_steps_;
  int32_t step_number_ = 0;
};

}  // namespace fasa
