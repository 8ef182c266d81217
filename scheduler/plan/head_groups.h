// Splits the KV heads of a layer into groups that are scored one after the other: the rows of one
// group are fetched while the next is scored. Results are bit-identical, as heads share nothing.
//
//   compute   select g0 -> select g1 -> FAC g0 -> FAC g1
//   copy             \-> fetch g0  \-> fetch g1
//
// Each further group costs a select, a fetch, an attend (KernelCosts) and one transfer latency, so
// the device's rates decide how many groups there are and which heads they have. With a low-bit
// set, its codes of all heads may be attended to first, in a launch of its own, while rows are
// fetched:
//
//   compute   select -> codes -> FAC
//   copy            \-> fetch -/
#pragma once

#include <array>
#include <cstdint>

#include "kernels/params.h"
#include "offload/device_traits.h"
#include "scheduler/step_settings.h"

namespace fasa {

class HeadGroups {
 public:
  static constexpr int kMax = 4;

  HeadGroups() = default;
  explicit HeadGroups(int kv_heads) { ends_[0] = kv_heads; }

  int count() const { return count_; }
  HeadSpan operator[](int group) const {
    const auto at = static_cast<size_t>(group);
    return {group == 0 ? 0 : ends_[at - 1], ends_[at]};
  }
  void add(int end) { ends_[static_cast<size_t>(count_++)] = end; }
  // Whether the low-bit set is attended to in a launch of its own, before any rows.
  bool codes_first() const { return codes_first_; }
  void set_codes_first(bool first) { codes_first_ = first; }
  bool operator==(const HeadGroups&) const = default;

  static HeadGroups none() {
    HeadGroups groups;
    groups.count_ = 0;
    return groups;
  }

 private:
  int count_ = 1;
  bool codes_first_ = false;
  std::array<int, kMax> ends_{};
};

// Costs of a layer's selected attention without the append, in seconds, for all sequences together;
// per-head values are for one head of each sequence.
struct GroupTimes {
  double launch = 0;
  double select_call = 0;  // however many heads a call has, this and the next two
  double fetch_call = 0;
  double attend_call = 0;
  double latency = 0;
  double score = 0;
  double resolve = 0;
  double transfer = 0;  // misses of one head, over the link
  double attend = 0;
  double codes = 0;        // of `attend`: the low-bit set, which needs no rows
  double meanwhile = 0;    // other compute before the last group's rows are needed
  double ahead_moves = 0;  // the link's part of `ahead`
  double ahead = 0;        // rows fetched ahead of the layer: their claims, the link, its latency
  double period = 0;       // compute from one layer to the next; 0: unknown, `ahead` is in time
  int streams = 1;         // streams that fetch side by side

  // Time from the first select to the last FAC, as computed by the emulated device's clock.
  double span(const HeadGroups& groups) const;
  // span(), what transfers take beyond it, and a quarter of a launch per group, half of that for
  // codes that come first: launches also cost host time.
  double cost(const HeadGroups& groups) const;

 private:
  // Until when, after the first select, the link is busy with rows that were fetched ahead.
  double link_busy(const HeadGroups& groups) const;
  // Time of the link beyond a layer's.
  double overload(const HeadGroups& groups) const;
};

// The load of a layer's decode step, as far as it is known before scoring.
struct GroupLoad {
  int sequences = 0;      // sequences that select tokens
  int64_t scored = 0;     // tokens, all sequences
  double miss_share = 0;  // misses per set entry, those that are fetched ahead left out
  int hot_rows = 0;       // per sequence
  int runners_up = 0;     // listed per head
  double ahead = 0;       // rows fetched ahead per set entry, used or not
  double period = 0;      // see GroupTimes

  bool operator==(const GroupLoad&) const = default;
};

// Without the write-back.
GroupTimes group_times(const StepSettings& settings, int layer, const GroupLoad& load);

// The cheapest split; one group if splitting costs more than it hides. `wanted` > 0: that many
// groups, at most one per head.
HeadGroups choose_groups(const GroupTimes& times, int kv_heads, int wanted);

// Expected share of misses in a layer's set, given `visible` tokens and the hot rows, without
// prefetch. Fitted to the shipped trace: 0.205 with two sets of hot rows, 0.1 with four, 0.04 with
// eight, 0.026 with sixteen (docs/results/prefetch.md).
double likely_miss_share(const StepSettings& settings, int layer, int32_t visible, int hot_rows);
// Sets of hot rows with which a fetch is likely to take least, 2 to 16 (32 find no more on the
// trace): it looks at every slot, and moves the rows that the slots lack.
int worthwhile_sets(const StepSettings& settings);
// Expected share of these misses that runners-up fetch ahead. Measured on the same trace: 0.31 with
// eight sets of hot rows, 0.61 with sixteen; with fewer there are none.
double likely_coverage(const StepSettings& settings, int layer, int32_t visible, int hot_rows);
// Expected rows fetched ahead for each of these misses: 4.5 and 2.2 there.
double likely_ahead(const StepSettings& settings, int layer, int32_t visible, int hot_rows);

// Seconds of a layer's selected attention in these groups.
double layer_seconds(const StepSettings& settings, int layer, const GroupLoad& load,
                     const HeadGroups& groups);
// The groups of a step, by expected misses.
HeadGroups plan_groups(const StepSettings& settings, int layer, const GroupLoad& load);

}  // namespace fasa
