// The positions of one sequence that compete for a decode step's budget.
#pragma once

#include <algorithm>

#include "kernels/params.h"

namespace fasa {

// Runners-up worth fetching: those up to twice the set if hot rows hold eight sets. With fewer they
// would evict rows that are used more, and their claims take longer than the misses that they save
// (docs/prefetch.md).
constexpr int32_t max_runners_up(int hot_rows, int set) { return hot_rows / 8 >= set ? set : 0; }

struct SelectPlan {
  int first = 0;  // visible are [first, end)
  int end = 0;
  int sinks_end = 0;     // [first, sinks_end) and [recent_begin, end) are in the set
  int recent_begin = 0;  // [sinks_end, recent_begin) compete
  int budget = 0;        // the set's size
  int need = 0;          // tokens to select of those that compete; all of them if budget = visible
  int low_bit = 0;       // next best tokens, for the low-bit set
  int runners_up = 0;    // next best tokens, in order

  constexpr int in_both() const { return need + low_bit; }  // of the set and the low-bit set
  constexpr int ranked() const { return need + std::max(low_bit, runners_up); }
  constexpr int visible() const { return end - first; }
  constexpr bool is_dense() const { return budget == visible(); }
  constexpr int first_page() const { return first / kPageTokens; }
  constexpr int pages() const { return (end - 1) / kPageTokens + 1 - first_page(); }
};

constexpr SelectPlan plan_selection(const SelectParams& params, const SequenceDesc& sequence) {
  const CacheLayout& layout = params.step.layout;
  SelectPlan plan;
  plan.end = params.ahead > 0 ? sequence.start : sequence.end();
  plan.first = params.window > 0 ? std::max(0, sequence.end() - params.window) : 0;
  plan.sinks_end = std::clamp(layout.sinks, plan.first, plan.end);
  plan.recent_begin = std::clamp(sequence.end() - layout.recent, plan.sinks_end,
                                 std::max(plan.sinks_end, plan.end));
  plan.budget = params.budget.of(plan.visible(), layout.sinks + layout.recent + 1);
  plan.need = plan.budget - (plan.sinks_end - plan.first) - (plan.end - plan.recent_begin);
  if (params.ahead > 0) return plan;
  const int others = plan.recent_begin - plan.sinks_end - plan.need;
  if (params.low_bit.capacity > 0) {
    plan.low_bit = std::min(params.low_bit_budget.of(plan.visible(), 0), others);
  }
  const int32_t worth = max_runners_up(sequence.hot_rows, plan.budget);
  plan.runners_up = std::min(std::min(params.runners_up.capacity, worth), others);
  return plan;
}

// Whether a block of the CUDA device's select has enough shared memory for the queries of a KV
// head's group, and for one warp's scores and weights of a page. In floats, out of the 99 KiB that
// every GPU from 8.0 on has (64 KiB on 7.5), less 25 KiB for ranking.
constexpr bool cuda_holds_queries(int group, int slice_dims, int compute_capability) {
  const int64_t most = compute_capability < 80 ? 9500 : 18 << 10;
  return int64_t{group} * (slice_dims + kPageTokens + 20) + int64_t{6} * slice_dims <= most;
}

}  // namespace fasa
