// A selection trace stretched over another geometry and length: which set a layer's selection takes
// in a step that was never computed. docs/trace-format.md describes the rule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/select_plan.h"
#include "runtime/trace/selection_trace.h"

namespace fasa {

// Where a set is wanted. `step` counts from the first decode step, `sequence` the step's sequences.
struct TracePlace {
  int64_t step = 0;
  int sequence = 0;
  int layer = 0;
  int kv_head = 0;
};

class TraceTiling {
 public:
  // `tokens`: context of the target's first step. The trace outlives this.
  TraceTiling(const SelectionTrace& trace, int64_t tokens, uint64_t seed);

  // Writes plan.budget ascending positions of [plan.first, plan.end): sinks and recent as the plan
  // has them, the others where the trace's set lies. Any thread.
  void true_set(const TracePlace& place, const SelectPlan& plan, int32_t* set) const;
  // The prediction made `ahead` layers before with `chunks` FCs (0 = all). False where the trace
  // has none so deep for the layer that stands there: then it is the set of the step before.
  bool predicted_set(const TracePlace& place, int ahead, int chunks, const SelectPlan& plan,
                     int32_t* set) const;

  // What of the trace stands for a place.
  int trace_layer(int layer) const;
  int trace_step(const TracePlace& place) const;
  const SelectionTrace& trace() const { return trace_; }

 private:
  void fill(int trace_step, std::span<const int32_t> source, const SelectPlan& plan,
            int32_t* set) const;
  int64_t stretch_begin(int64_t position) const;

  const SelectionTrace& trace_;
  const int64_t tokens_;
  const uint64_t seed_;
};

}  // namespace fasa
