// Fills in a step's parameters for kernels: its sequences, its number, and constant parts.
#pragma once

#include <cstdint>

#include "runtime/api/sequences/decode_rounds.h"
#include "runtime/api/sequences/step_streams.h"

namespace fasa {

class StepDescriber {
 public:
  // Step numbers run from 1 to `max_steps`. Throws UsageError for a wrong `max_steps`. `streams`
  // outlives the describer.
  StepDescriber(StepStreams& streams, int32_t max_steps);

  // For the next `numbers` step numbers. When they have run out, they restart and hot rows start
  // empty.
  void make_room(int numbers);
  void advance() { ++step_number_; }

  // Enqueues table uploads and repairs for the step's sequences, whose memory is reserved, and
  // fills in the fields that the executor and the kernels read.
  void describe(OpenStep& step, const DecodeRounds& rounds = {});
  // Makes the slices of a sequence that has memory for them, between steps.
  void code(KvSequence& sequence, DescriptorBuffer& slot);
  // The rounds of a described step's attention, which begin with its tables as they are now.
  void describe_rounds(OpenStep& step, const DecodeRounds& rounds) const;

 private:
  void list(OpenStep& step) const;
  void list_rounds(OpenStep& step, const DecodeRounds& rounds);
  void restore(const OpenStep& step) const;
  void code(const DescriptorBuffer& slot) const;

  StepStreams& streams_;
  StepEngine& engine_;
  SequenceTable& sequences_;
  const int32_t max_steps_;
  int32_t step_number_ = 0;  // the last one used
};

}  // namespace fasa
