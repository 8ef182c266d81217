// Stretches a selection trace over another geometry and length: gives the set of any layer and
// step. The trace's sinks and recent tokens are dropped; the target has its own.
// Positions: with N tokens in the target's first step and n in the trace's last, trace position p
// stands for the range from p N / n to (p + 1) N / n. If the target's set is r times as large, each
// range yields r consecutive tokens, at an offset that depends on p alone: persistent tokens stay
// so. For a fractional r, ranges with the lowest hash of p yield one more. Missing tokens are taken
// from the newest backwards, so sets always have the requested size.
// Layers: the first ones are the trace's, later ones repeat its layers except the first. KV heads
// repeat in turn. Each repetition of layers starts 7 steps further in the trace, each of heads 13,
// each sequence 29; the trace is traversed forwards and backwards.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/select_plan.h"
#include "runtime/trace/selection_trace.h"

namespace fasa {

// Identifies a set. `step` counts from the first decode step; `sequence` is an index into the step.
struct TraceSetId {
  int64_t step = 0;
  int sequence = 0;
  int layer = 0;
  int kv_head = 0;
};

class TraceTiling {
 public:
  // `tokens`: context of the target's first step. The trace must outlive it.
  TraceTiling(const SelectionTrace& trace, int64_t tokens, uint64_t seed);

  // Writes plan.budget ascending positions of [plan.first, plan.end): the plan's sinks and recent
  // tokens, the others from the trace's set. Thread-safe.
  void true_set(const TraceSetId& id, const SelectPlan& plan, int32_t* set) const;
  // Writes up to plan.runners_up positions behind `set`, a true_set() of this id, best first;
  // returns how many. None if the trace has no ranking.
  int32_t runners_up(const TraceSetId& id, const SelectPlan& plan, std::span<const int32_t> set,
                     int32_t* out) const;

  // The trace's layer for a layer of the target.
  int trace_layer(int layer) const;
  int trace_step(const TraceSetId& id) const;
  const SelectionTrace& trace() const { return trace_; }

 private:
  void fill(int trace_step, std::span<const int32_t> source, const SelectPlan& plan,
            int32_t* set) const;
  int64_t stretch_begin(int64_t position) const;
  uint64_t hash_of(int32_t position) const;

  const SelectionTrace& trace_;
  const int64_t tokens_;
  const uint64_t seed_;
};

}  // namespace fasa
