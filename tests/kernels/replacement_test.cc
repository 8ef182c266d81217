// The choice of hot rows to replace against a simple implementation that takes one at a time.
#include "kernels/replacement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace fasa {
namespace {

struct Table {
  std::vector<int32_t> positions, last_uses;
  HotSlots slots() {
    return {positions.data(), last_uses.data(), static_cast<int>(positions.size())};
  }
};

// Empty, predicted or used, and for how long: the highest goes first.
int64_t urgency(const Table& table, size_t slot, int32_t step) {
  if (table.positions[slot] < 0) return int64_t{1} << 40;
  const int32_t last_use = table.last_uses[slot];
  const int64_t idle = std::min(step - step_of(last_use), kEvictionOrders / 2 - 1);
  return is_prediction(last_use) ? idle + kEvictionOrders : idle;
}

std::vector<int32_t> one_at_a_time(Table table, int32_t step, int wanted) {
  std::vector<int32_t> chosen;
  while (static_cast<int>(chosen.size()) < wanted) {
    int best = -1;
    for (size_t slot = 0; slot < table.positions.size(); ++slot) {
      const int32_t last_use = table.last_uses[slot];
      const bool kept = stays(last_use) || step_of(last_use) == step;
      if (kept && table.positions[slot] >= 0) continue;
      const bool first =
          best < 0 || urgency(table, slot, step) > urgency(table, static_cast<size_t>(best), step);
      if (first) best = static_cast<int>(slot);
    }
    if (best < 0) break;
    chosen.push_back(best);
    table.positions[static_cast<size_t>(best)] = 1000;
    table.last_uses[static_cast<size_t>(best)] = slot_use(step);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

TEST(Replacement, SameAsOneAtATime) {
  std::mt19937 random(11);
  constexpr int32_t kStep = 3000;
  for (const int count : {0, 1, 2, 7, 33, 200}) {
    for (const int32_t idle : {1, 6, 2000}) {
      for (int round = 0; round < 60; ++round) {
        Table table;
        for (int slot = 0; slot < count; ++slot) {
          table.positions.push_back(random() % 8 < 2 ? -1 : 100 + slot);
          const auto then =
              kStep - static_cast<int32_t>(random() % static_cast<unsigned>(idle + 1));
          const int32_t use = random() % 5 == 0 ? predicted_use(then) : slot_use(then);
          table.last_uses.push_back(random() % 5 == 0 ? staying(use) : use);
        }
        const int wanted = static_cast<int>(random() % static_cast<unsigned>(count + 3));
        std::vector<int32_t> victims(static_cast<size_t>(count) + 1, -9);
        const int chosen = choose_victims(table.slots(), kStep, wanted, victims.data());
        victims.resize(static_cast<size_t>(chosen));
        ASSERT_EQ(victims, one_at_a_time(table, kStep, wanted)) << count << " slots";
      }
    }
  }
}

TEST(Replacement, OrderOfASlot) {
  constexpr int32_t kStep = kMaxSteps;
  EXPECT_EQ(eviction_order(-1, -1, kStep), 0);
  EXPECT_EQ(eviction_order(5, slot_use(kStep), kStep), kEvictionOrders);
  EXPECT_EQ(eviction_order(5, staying(slot_use(kStep - 9)), kStep), kEvictionOrders);
  const int last = eviction_order(5, slot_use(kStep - 1), kStep);
  EXPECT_LT(last, kEvictionOrders);
  EXPECT_EQ(eviction_order(5, slot_use(kStep - 2), kStep), last - 1);
  EXPECT_LT(eviction_order(5, predicted_use(kStep - 1), kStep),
            eviction_order(5, slot_use(0), kStep));
  EXPECT_GT(eviction_order(5, predicted_use(0), kStep), 0);
}

TEST(Replacement, WordOfALastUse) {
  for (const int32_t step : {0, 7, kMaxSteps}) {
    for (const int32_t use : {slot_use(step), predicted_use(step)}) {
      EXPECT_EQ(step_of(use), step);
      EXPECT_EQ(is_prediction(use), use == predicted_use(step));
      EXPECT_FALSE(stays(use));
      EXPECT_TRUE(stays(staying(use)));
      EXPECT_EQ(step_of(staying(use)), step);
      EXPECT_EQ(without_staying(staying(use)), use);
    }
  }
}

}  // namespace
}  // namespace fasa
