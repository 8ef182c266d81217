// Chooses the hot rows that fetched rows replace: empty slots, then rows that were fetched on a
// prediction and that no set used, then the least recently used. One definition for all kernels:
// the choice changes no result, but every implementation evicts the same rows. Slots that this step
// has used are never taken: their rows are needed, or on their way.
//
// On SmolLM2's selections other policies miss more rows with four sets of hot rows and eight
// (docs/results/prefetch.md).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/hot_slots.h"

namespace fasa {

// Orders of eviction; the lowest goes first, and of slots of one order the lowest number. Rows
// unused for more than kMaxIdle steps count as unused for kMaxIdle.
inline constexpr int kEvictionOrders = 1024;

// The order of a slot in this step; kEvictionOrders if it stays.
constexpr int eviction_order(int32_t position, int32_t last_use, int32_t step) {
  constexpr int32_t kMaxIdle = kEvictionOrders / 2 - 1;
  if (position < 0) return 0;
  if (stays(last_use) || step_of(last_use) == step) return kEvictionOrders;
  const int32_t age = std::clamp(step - step_of(last_use), 1, kMaxIdle);
  return (is_prediction(last_use) ? 1 : kEvictionOrders / 2) + kMaxIdle - age;
}

// Writes up to `wanted` slots to victims[slots.count], ascending; returns how many. The caller sets
// the last use of each of them.
int choose_victims(const HotSlots& slots, int32_t step, int wanted, int32_t* victims);

}  // namespace fasa
