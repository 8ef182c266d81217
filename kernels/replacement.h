// Which hot rows give way to fetched ones. One definition for all kernels on the host: what is
// evicted changes no result, but every implementation evicts the same.
//
// All take empty slots first, then rows that were fetched on a prediction and never used (measured
// with queries that drift by a tenth a step: 484 instead of 491 us, hits 0.68 instead of 0.66,
// where they had their turn by age), and never a slot that was stamped in this step: its row is
// needed, or on its way. `keep`: slots that stay as well, or null.
#pragma once

#include <cstdint>

#include "kernels/hot_slots.h"

namespace fasa {

enum class Replacement : uint8_t {
  kLru,    // least recently used, ties by slot
  kClock,  // second chance: a hand passes over what was used since it last came by
  kScore,  // longest unused for how often it was used
};

class LruReplacement {
 public:
  // Writes up to `wanted` slots to victims[slots.count], the first to go first; returns how many.
  // The caller sets the last use of every one of them anew.
  static int choose(const HotSlots& slots, int32_t step, const uint8_t* keep, int wanted,
                    int32_t* victims);
};

class ClockReplacement {
 public:
  // Moves the hand and takes chances away.
  static int choose(const HotSlots& slots, int32_t step, const uint8_t* keep, int wanted,
                    int32_t* victims);
};

// A row that n steps used counts as unused for 1 / (n + 1) of the steps since the last of them. The
// count (renewed_use) decays. Counts and not the scores that selection gave: those tell how much a
// query wanted a row, are not comparable between queries, and age at once, while a row that step
// after step selects comes back.
class ScoreReplacement {
 public:
  static int choose(const HotSlots& slots, int32_t step, const uint8_t* keep, int wanted,
                    int32_t* victims);
};

int choose_victims(Replacement policy, const HotSlots& slots, int32_t step, const uint8_t* keep,
                   int wanted, int32_t* victims);

}  // namespace fasa
