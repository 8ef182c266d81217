// The KV heads of a layer in groups that are scored one after the other, so that the rows of the
// first are fetched while the others are scored. Bits do not depend on it: heads share nothing.
//
//   compute   select g0 -> select g1 -> FAC g0 -> FAC g1
//   copy             \-> fetch g0  \-> fetch g1
//
// Each group more costs two launches and another transfer's latency, so how many there are, and
// which heads, follows from the device's rates.
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
  bool operator==(const HeadGroups&) const = default;

  static HeadGroups none() {
    HeadGroups groups;
    groups.count_ = 0;
    return groups;
  }

 private:
  int count_ = 1;
  std::array<int, kMax> ends_{};
};

// What a layer's selected attention takes, append aside, all sequences together. Seconds, and those of a head of
// each sequence.
struct GroupTimes {
  double launch = 0;
  double latency = 0;
  double score = 0;
  double resolve = 0;
  double transfer = 0;  // of the head's misses over the link
  double attend = 0;
  double meanwhile = 0;  // compute has so much else to do before it needs the last group's rows
  int streams = 1;       // streams that fetch side by side

  // From the first select to the last FAC, as the emulated device's clock has it.
  double span(const HeadGroups& groups) const;
  // ... and a quarter of a launch for each group, which it has to save: launches are the host's time too.
  double cost(const HeadGroups& groups) const;
};

// A layer's decode step, as far as that is known before it is scored.
struct GroupLoad {
  int sequences = 0;      // that select among their tokens
  int64_t scored = 0;     // tokens, all of them together
  double miss_share = 0;  // of the entries of their sets
  int hot_rows = 0;       // of a sequence
};

// Without what it writes.
GroupTimes group_times(const StepSettings& settings, int layer, const GroupLoad& load);

// The groups that cost least: one where splitting costs more than it hides. `wanted` > 0:
// so many, or one for each head.
HeadGroups choose_groups(const GroupTimes& times, int kv_heads, int wanted);

// What the entries of a layer's set will miss, of `visible` tokens, as far as hot rows tell: fitted to
// the shipped trace (0.49 with two sets of them, 0.34 with four, 0.21 with eight, 0.12 with sixteen).
double likely_miss_share(const StepSettings& settings, int layer, int32_t visible, int hot_rows);

// Those of a step: chosen by what is likely.
HeadGroups plan_groups(const StepSettings& settings, int layer, const GroupLoad& load);

}  // namespace fasa
