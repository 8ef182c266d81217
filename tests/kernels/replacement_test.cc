// Each replacement policy against a simple implementation that chooses one victim at a time.
#include "kernels/replacement.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace fasa {
namespace {

struct Table {
  std::vector<int32_t> positions, last_uses;
  int32_t hand = -1;
  HotSlots slots() {
    return {positions.data(), last_uses.data(), &hand, static_cast<int>(positions.size())};
  }
};

bool may_go(const Table& table, size_t slot, int32_t step, const std::vector<uint8_t>& keep) {
  return keep[slot] == 0 && (table.positions[slot] < 0 || step_of(table.last_uses[slot]) != step);
}

// The next victim, or -1. Every policy takes empty slots first, then unused predictions.
int simple_victim(const Table& table, int32_t step, const std::vector<uint8_t>& keep) {
  for (const bool empty : {true, false}) {
    int best = -1;
    for (size_t slot = 0; slot < table.positions.size(); ++slot) {
      if (!may_go(table, slot, step, keep) || (table.positions[slot] < 0) != empty) continue;
      if (empty) return static_cast<int>(slot);
      if (is_prediction(table.last_uses[slot]) && best < 0) best = static_cast<int>(slot);
    }
    if (best >= 0) return best;
  }
  return -1;
}

int next_victim(Replacement policy, Table& table, int32_t step, const std::vector<uint8_t>& keep) {
  const auto count = static_cast<int>(table.positions.size());
  const int simple = simple_victim(table, step, keep);
  if (simple >= 0 &&
      (table.positions[static_cast<size_t>(simple)] < 0 || policy == Replacement::kClock)) {
    return simple;
  }
  if (policy == Replacement::kClock) {
    if (table.hand < 0) table.hand = 0;
    for (int seen = 0; seen < 2 * count; ++seen) {
      const auto slot = static_cast<size_t>(table.hand);
      table.hand = (table.hand + 1) % count;
      if (!may_go(table, slot, step, keep)) continue;
      if (uses_of(table.last_uses[slot]) == 0) return static_cast<int>(slot);
      table.last_uses[slot] = slot_use(step_of(table.last_uses[slot]), 0);
    }
    return -1;
  }
  int best = -1;
  double best_value = -1;
  for (size_t slot = 0; slot < table.positions.size(); ++slot) {
    if (!may_go(table, slot, step, keep)) continue;
    const int32_t last_use = table.last_uses[slot];
    double value = step - step_of(last_use);
    if (policy == Replacement::kScore) value /= uses_of(last_use) + 1;
    if (is_prediction(last_use)) value += 1e9;
    if (value > best_value) best_value = value, best = static_cast<int>(slot);
  }
  return best;
}

Table random_table(std::mt19937& random, int count, int32_t step) {
  Table table;
  for (int slot = 0; slot < count; ++slot) {
    const auto kind = random() % 8;
    table.positions.push_back(kind < 2 ? -1 : 100 + slot);
    const auto then = step - static_cast<int32_t>(random() % 6);
    table.last_uses.push_back(random() % 5 == 0
                                  ? predicted_use(then)
                                  : slot_use(then, static_cast<int32_t>(random() % 8)));
  }
  return table;
}

TEST(Replacement, SameAsOneAtATime) {
  std::mt19937 random(11);
  for (const auto policy : {Replacement::kLru, Replacement::kClock, Replacement::kScore}) {
    for (const int count : {0, 1, 2, 7, 33}) {
      for (int round = 0; round < 200; ++round) {
        const int32_t step = 50;
        Table fast = random_table(random, count, step);
        fast.hand = count > 0 && round % 3 != 0 ? round % count : -1;
        Table slow = fast;
        std::vector<uint8_t> keep(static_cast<size_t>(count), 0);
        for (uint8_t& stays : keep) stays = random() % 5 == 0 ? 1 : 0;
        const int wanted = static_cast<int>(random() % static_cast<unsigned>(count + 3));
        std::vector<int32_t> victims(static_cast<size_t>(count) + 1, -9);
        const int chosen =
            choose_victims(policy, fast.slots(), step, keep.data(), wanted, victims.data());
        std::vector<int32_t> expected;
        while (static_cast<int>(expected.size()) < wanted) {
          const int victim = next_victim(policy, slow, step, keep);
          if (victim < 0) break;
          expected.push_back(victim);
          slow.positions[static_cast<size_t>(victim)] = 1000;
          slow.last_uses[static_cast<size_t>(victim)] = slot_use(step, 1);
        }
        victims.resize(static_cast<size_t>(chosen));
        ASSERT_EQ(victims, expected) << static_cast<int>(policy) << " of " << count;
      }
    }
  }
}

TEST(Replacement, UsesCountAndDecay) {
  int32_t last_use = slot_use(10, 1);
  EXPECT_EQ(renewed_use(last_use, 10), last_use);  // at most once a step
  for (int32_t step = 11; step < 40; ++step) last_use = renewed_use(last_use, step);
  EXPECT_EQ(uses_of(last_use), kMaxUses);
  EXPECT_EQ(step_of(last_use), 39);
  EXPECT_EQ(uses_of(renewed_use(last_use, 39 + 16)), 4);
  EXPECT_EQ(uses_of(renewed_use(last_use, 39 + 500)), 1);
  EXPECT_EQ(renewed_use(predicted_use(7), 7), slot_use(7, 1));
  EXPECT_EQ(step_of(predicted_use(kMaxSteps)), kMaxSteps);
}

}  // namespace
}  // namespace fasa
