// Runs a selection over one layer of a step in place of the select kernel, on the cpu device.
// Allocates as it goes: for comparison, not for serving.
#pragma once

#include "kernels/params.h"
#include "scheduler/step_batch.h"
#include "scheduler/step_scratch.h"
#include "scheduler/step_settings.h"

namespace fasa {

struct SelectionStage {
  const StepSettings& settings;
  const StepBatch& step;
  SelectParams
      params;  // sets and selected_sizes are [count, selected_heads, selected_capacity], [.]

  // The sets of the decode sequences.
  KernelWork select() const;
  // What the prefill sequences' queries saw is remembered, where the selection remembers.
  KernelWork observe_prefill() const;
  // With a set per query head: the row addresses that resolve() writes for sets per KV head,
  // [count, query_heads, wave].
  void place_rows(int32_t wave, const std::byte** rows) const;

 private:
  void record(StepMode mode) const;
  void choose(int sequence, int head) const;
};

// The layout that attention over a set per query head takes: every query head its own KV head.
CacheLayout per_query_head(CacheLayout layout);

}  // namespace fasa
