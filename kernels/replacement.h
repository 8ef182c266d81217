// Chooses the hot rows that fetched rows replace. One definition for all kernels on the host: the
// choice changes no result, but every implementation evicts the same rows.
//
// All policies take empty slots first, then rows that were fetched on a prediction and never used
// (measured with queries that drift by a tenth per step: 484 us instead of 491 us, hits 0.68
// instead of 0.66, against evicting them by age). They never take a slot that this step has used:
// its row is needed, or on its way. `keep`: further slots that stay, or null.
#pragma once

#include <cstdint>

#include "kernels/hot_slots.h"

namespace fasa {

enum class Replacement : uint8_t {
  kLru,    // least recently used, ties by slot
  kClock,  // second chance: a hand passes over slots used since its last visit
  kScore,  // longest unused, weighted by how often it was used
};

class LruReplacement {
 public:
  // Writes up to `wanted` slots to victims[slots.count] in eviction order; returns how many. The
  // caller sets the last use of each of them.
  static int choose(const HotSlots& slots, int32_t step, const uint8_t* keep, int wanted,
                    int32_t* victims);
};

class ClockReplacement {
 public:
  // Moves the hand and clears the second chances that it passes.
  static int choose(const HotSlots& slots, int32_t step, const uint8_t* keep, int wanted,
                    int32_t* victims);
};

// A row that n steps used counts as unused for 1 / (n + 1) of the steps since its last use. The
// count (renewed_use) decays. Uses are counted instead of the selection's scores because scores of
// different queries cannot be compared and are outdated after a step, while a row that is selected
// step after step comes back.
class ScoreReplacement {
 public:
  static int choose(const HotSlots& slots, int32_t step, const uint8_t* keep, int wanted,
                    int32_t* victims);
};

int choose_victims(Replacement policy, const HotSlots& slots, int32_t step, const uint8_t* keep,
                   int wanted, int32_t* victims);

}  // namespace fasa
