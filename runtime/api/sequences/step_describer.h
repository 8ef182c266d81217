// Fills in a step's parameters for kernels: its sequences, its number, and constant parts.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/api/sequences/runtime_parts.h"

namespace fasa {

class StepDescriber {
 public:
  // Step numbers run from 1 to `max_steps`. Throws UsageError for a wrong `max_steps` or wrong
  // dimensions, and BudgetError.
  StepDescriber(const RuntimeParts& parts, const Geometry& geometry,
                const std::vector<int16_t>& slice_dims, int32_t max_steps);

  // Number of the next step. When numbers have run out, they restart and hot rows start empty.
  int32_t step_number() const { return step_number_; }
  void make_room();
  void advance() { ++step_number_; }

  // Enqueues table uploads and repairs for the step's sequences, whose memory is reserved, and
  // fills in the fields that the pipeline and the kernels read.
  void describe(OpenStep& step, StepCounters* counters);
  // Makes the slices of a sequence that has memory for them, between steps.
  void code(KvSequence& sequence, DescriptorBuffer& slot);
  // For a step in which a sequence decodes several tokens.
  static void describe_each(OpenStep& step);
  uint64_t bytes() const { return slice_dims_.bytes() + slopes_.bytes(); }

 private:
  void upload_slopes(const Geometry& geometry);
  void list(OpenStep& step) const;
  void restore(const OpenStep& step) const;
  void code(const DescriptorBuffer& slot) const;

  const RuntimeParts parts_;
  Buffer slice_dims_;
  Buffer slopes_;
  const int32_t max_steps_;
  int32_t step_number_ = 0;
};

}  // namespace fasa
