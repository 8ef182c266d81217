#include "kernels/replacement.h"

#include <array>

namespace fasa {

int choose_victims(const HotSlots& slots, int32_t step, int wanted, int32_t* victims) {
  const auto order_of = [&](int32_t slot) {
    return eviction_order(slots.positions[slot], slots.last_uses[slot], step);
  };
  std::array<int32_t, kEvictionOrders> counts{};
  for (int32_t slot = 0; slot < slots.count; ++slot) {
    const int order = order_of(slot);
    if (order < kEvictionOrders) ++counts[static_cast<size_t>(order)];
  }
  // Slots of orders before `last` go, and the first `ties` of it.
  int last = 0;
  int ties = std::max(wanted, 0);
  while (last < kEvictionOrders && ties > counts[static_cast<size_t>(last)]) {
    ties -= counts[static_cast<size_t>(last++)];
  }
  if (last == kEvictionOrders) ties = 0;
  int chosen = 0;
  for (int32_t slot = 0; slot < slots.count; ++slot) {
    const int order = order_of(slot);
    if (order == last && ties > 0) {
      --ties;
    } else if (order >= last) {
      continue;
    }
    victims[chosen++] = slot;
  }
  return chosen;
}

}  // namespace fasa
