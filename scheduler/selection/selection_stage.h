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
  SelectParams
      params;  // sets and selected_sizes are [count, selected_heads, selected_capacity], [.]

  // The sets of the decode sequences.
  KernelWork select() const;
  // Records the prefill sequences' queries, if the selection has memory.
  KernelWork observe_prefill() const;
  // For a set per query head: writes the row addresses that resolve() writes for sets per KV head,
  // [count, query_heads, wave].
  void place_rows(int32_t wave, const std::byte** rows) const;

 private:
  void record(StepMode mode) const;
  void choose(int sequence, int head) const;
};

// The layout for attention with a set per query head: every query head is its own KV head.
CacheLayout per_query_head(CacheLayout layout);

}  // namespace fasa
