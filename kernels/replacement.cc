#include "kernels/replacement.h"

#include <algorithm>

namespace fasa {
namespace {

bool may_go(const HotSlots& slots, int slot, int32_t step, const uint8_t* keep) {
  if (keep != nullptr && keep[slot] != 0) return false;
  return slots.positions[slot] < 0 || step_of(slots.last_uses[slot]) != step;
}

// Eviction order. 0: empty; 1: holds a prediction that no set used; 2: by the policy.
int rank_of(const HotSlots& slots, int32_t slot) {
  if (slots.positions[slot] < 0) return 0;
  return is_prediction(slots.last_uses[slot]) ? 1 : 2;
}

// By rank, then by `sooner(last_use, last_use)`, then by slot.
template <typename Sooner>
int choose_ordered(const HotSlots& slots, int32_t step, const uint8_t* keep, int wanted,
                   int32_t* victims, const Sooner& sooner) {
  int count = 0;
  for (int32_t slot = 0; slot < slots.count; ++slot) {
    if (may_go(slots, slot, step, keep)) victims[count++] = slot;
  }
  const auto before = [&](int32_t a, int32_t b) {
    const int rank = rank_of(slots, a);
    if (rank != rank_of(slots, b)) return rank < rank_of(slots, b);
    if (rank > 0 && sooner(slots.last_uses[a], slots.last_uses[b])) return true;
    if (rank > 0 && sooner(slots.last_uses[b], slots.last_uses[a])) return false;
    return a < b;
  };
  const int chosen = std::min(wanted, count);
  std::nth_element(victims, victims + chosen, victims + count, before);
  std::sort(victims, victims + chosen, before);
  return chosen;
}

}  // namespace

int LruReplacement::choose(const HotSlots& slots, int32_t step, const uint8_t* keep, int wanted,
                           int32_t* victims) {
  return choose_ordered(slots, step, keep, wanted, victims,
                        [](int32_t a, int32_t b) { return step_of(a) < step_of(b); });
}

int ScoreReplacement::choose(const HotSlots& slots, int32_t step, const uint8_t* keep, int wanted,
                             int32_t* victims) {
  return choose_ordered(slots, step, keep, wanted, victims, [step](int32_t a, int32_t b) {
    const auto idle = [step](int32_t last_use) { return int64_t{step} - step_of(last_use); };
    return idle(a) * (uses_of(b) + 1) > idle(b) * (uses_of(a) + 1);
  });
}

int ClockReplacement::choose(const HotSlots& slots, int32_t step, const uint8_t* keep, int wanted,
                             int32_t* victims) {
  int chosen = 0;
  for (int rank = 0; rank < 2; ++rank) {
    for (int32_t slot = 0; slot < slots.count && chosen < wanted; ++slot) {
      if (rank_of(slots, slot) == rank && may_go(slots, slot, step, keep)) victims[chosen++] = slot;
    }
  }
  if (slots.count == 0) return chosen;
  int32_t& hand = *slots.hand;
  if (hand < 0 || hand >= slots.count) hand = 0;
  // At most two rounds: the first one clears every count of uses.
  for (int seen = 0; seen < 2 * slots.count && chosen < wanted; ++seen) {
    const int32_t slot = hand;
    hand = hand + 1 < slots.count ? hand + 1 : 0;
    if (rank_of(slots, slot) < 2 || !may_go(slots, slot, step, keep)) continue;
    int32_t& last_use = slots.last_uses[slot];
    if (uses_of(last_use) > 0) {
      last_use = slot_use(step_of(last_use), 0);
      continue;
    }
    victims[chosen++] = slot;
    last_use = slot_use(step, 0);  // marked as used: it is not taken twice
  }
  return chosen;
}

int choose_victims(Replacement policy, const HotSlots& slots, int32_t step, const uint8_t* keep,
                   int wanted, int32_t* victims) {
  switch (policy) {
    case Replacement::kLru:
      return LruReplacement::choose(slots, step, keep, wanted, victims);
    case Replacement::kClock:
      return ClockReplacement::choose(slots, step, keep, wanted, victims);
    case Replacement::kScore:
      return ScoreReplacement::choose(slots, step, keep, wanted, victims);
  }
  return 0;
}

}  // namespace fasa
