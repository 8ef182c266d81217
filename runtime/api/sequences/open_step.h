// A step of the sequences API, from begin_step to end_step or abort_step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "scheduler/descriptor_buffer.h"
#include "scheduler/step_batch.h"

namespace fasa {

struct OpenStep {
  std::vector<StepSequence> sequences;
  StepBatch tables;
  // What attends, where a sequence decodes several tokens: each of them as one of its own.
  std::vector<SequenceDesc> each;
  std::vector<SequenceDesc> each_in_window_rows;
  std::optional<StepBatch> each_tables;
  DescriptorBuffer* slot = nullptr;
  size_t slot_index = 0;
  int64_t tokens = 0;
  int appended = 0;  // layers
  int attended = 0;
  StreamView compute;
  bool decodes = false;
  bool launched = false;               // as a graph, whose work is all awaited by compute
  bool recording = false;              // what is enqueued goes into a graph
  std::optional<std::string> failure;  // its streams are gone; it can only be aborted

  // So many layers were appended, and as many attended to or none.
  bool went_through(int layers) const {
    return appended == layers && (attended == 0 || attended == layers);
  }
};

}  // namespace fasa
