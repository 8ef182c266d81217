// The order of prompts: short ones do not wait for long ones, and long ones wait only so long.
#include "runtime/serve/prompt_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/simulation/draw.h"

namespace fasa::serve {

bool operator==(const PromptTurns::Turn& a, const PromptTurns::Turn& b) {
  return a.prompt == b.prompt && a.tokens == b.tokens;
}
std::ostream& operator<<(std::ostream& out, const PromptTurns::Turn& turn) {
  return out << "prompt " << turn.prompt << ", " << turn.tokens << " tokens";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Turn = PromptTurns::Turn;

std::vector<PromptTurns::Prompt> prompts_of(const std::vector<int64_t>& left, double owed = 0) {
  std::vector<PromptTurns::Prompt> prompts;
  for (const int64_t tokens : left) prompts.push_back({.left = tokens, .most = tokens});
  if (!prompts.empty()) prompts[0].owed = owed;
  return prompts;
}

TEST(PromptTurns, TheLeastLeftGoesFirst) {
  const PromptTurns turns(0.5);
  EXPECT_THAT(turns.next(prompts_of({}), 512, true), IsEmpty());
  EXPECT_THAT(turns.next(prompts_of({7000}), 512, true), ElementsAre(Turn{0, 512}));
  EXPECT_THAT(turns.next(prompts_of({7000, 20}), 512, true), ElementsAre(Turn{1, 20}));
  EXPECT_THAT(turns.next(prompts_of({7000, 900, 800}), 512, true), ElementsAre(Turn{2, 512}));
}

TEST(PromptTurns, ShortPromptsShareAStep) {
  const PromptTurns turns(0.5);
  EXPECT_THAT(turns.next(prompts_of({7000, 300, 20, 200}), 512, true),
              ElementsAre(Turn{2, 20}, Turn{3, 200}));
  EXPECT_THAT(turns.next(prompts_of({20, 300, 20}), 512, true),
              ElementsAre(Turn{0, 20}, Turn{1, 300}, Turn{2, 20}));
}

// Beside streams a chunk takes about a decode step anyway.
TEST(PromptTurns, AChunkBesideStreamsIsFilled) {
  EXPECT_THAT(PromptTurns(0.5).next(prompts_of({7000, 20}), 64, false),
              ElementsAre(Turn{0, 44}, Turn{1, 20}));
}

// One whose chunk is under way takes no part in steps, but has its turn.
TEST(PromptTurns, APromptMayTakeNoPartInSteps) {
  const PromptTurns turns(0.5);
  auto prompts = prompts_of({7000, 900, 20});
  prompts[2].most = 0;
  EXPECT_EQ(turns.first(prompts, 512), 2u);
  EXPECT_THAT(turns.next(prompts, 512, true), ElementsAre(Turn{1, 512}));
  prompts[0].owed = 512;
  EXPECT_EQ(turns.first(prompts, 512), 0u);
  prompts[0].most = 0;
  EXPECT_THAT(turns.next(prompts, 512, true), ElementsAre(Turn{1, 512}));
  EXPECT_DOUBLE_EQ(turns.owed_after(10, 0, 2.5), 12.5);
  EXPECT_DOUBLE_EQ(turns.owed_after(10, 2.5, 0), 7.5);
}

TEST(PromptTurns, AnOwedChunkComesFirst) {
  const PromptTurns turns(0.25);
  auto prompts = prompts_of({7000, 900});
  int steps = 0;
  for (;; ++steps) {
    const auto next = turns.next(prompts, 512, true);
    prompts[0].owed = turns.owed_after(prompts, next);
    if (next[0].prompt == 0) break;
  }
  EXPECT_EQ(steps, 3) << "a quarter of four chunks";
  EXPECT_EQ(prompts[0].owed, 0);
}

TEST(PromptTurns, AShareOfOneIsTheOrderOfArrivalAndOfZeroNever) {
  EXPECT_THAT(PromptTurns(1).next(prompts_of({7000, 20}), 512, true), ElementsAre(Turn{0, 512}));
  EXPECT_THAT(PromptTurns(1).next(prompts_of({100, 7000, 20}), 512, false),
              ElementsAre(Turn{0, 100}, Turn{1, 412}));
  const PromptTurns never(0);
  EXPECT_THAT(never.next(prompts_of({7000, 20}, 1e9), 512, true), ElementsAre(Turn{1, 20}));
  EXPECT_EQ(never.owed_after(prompts_of({7000, 20}), std::vector<Turn>{{1, 20}}), 0);
}

TEST(PromptTurns, AStepOfFewTokensCountsAsMore) {
  const PromptTurns turns(0.5);
  EXPECT_EQ(turns.owed_after(prompts_of({7000, 1}), std::vector<Turn>{{1, 1}}), 16);
  EXPECT_EQ(turns.owed_after(prompts_of({7000, 1}, 5), std::vector<Turn>{{0, 3}, {1, 1}}), 15);
}

// Drawn arrivals: no prompt ends later than its share of the older work allows.
TEST(PromptTurns, DrawnPromptsWaitNoLongerThanTheShareAllows) {
  struct Arrived {
    int64_t left, at, due;
    double owed = 0;
  };
  for (uint64_t seed = 0; seed < 300; ++seed) {
    testing::Draw draw(seed);
    const double share = draw.of({0.1, 0.25, 0.5, 0.9, 1.0});
    const auto chunk = static_cast<int>(draw.of({16, 64, 512}));
    const PromptTurns turns(share);
    std::vector<Arrived> waiting;
    int64_t now = 0;
    for (int step = 0; step < 400; ++step) {
      while (step < 300 && waiting.size() < 12 && draw.one_in(3)) {
        const int64_t tokens = draw.one_in(4) ? draw.between(600, 4000) : draw.between(1, 60);
        double work = static_cast<double>(tokens);
        for (const Arrived& older : waiting) work += static_cast<double>(older.left);
        work += chunk * static_cast<double>(waiting.size() + 2);
        waiting.push_back({tokens, now, now + static_cast<int64_t>(work / share) + chunk});
      }
      std::vector<PromptTurns::Prompt> prompts;
      for (const Arrived& one : waiting) {
        prompts.push_back({.left = one.left, .most = one.left, .owed = one.owed});
      }
      const auto next = turns.next(prompts, chunk, draw.one_in(2));
      ASSERT_EQ(next.empty(), waiting.empty());
      if (next.empty()) continue;
      waiting[0].owed = turns.owed_after(prompts, next);
      int64_t took = 0;
      for (const Turn& turn : next) {
        ASSERT_GT(turn.tokens, 0);
        waiting[turn.prompt].left -= turn.tokens;
        ASSERT_GE(waiting[turn.prompt].left, 0);
        took += turn.tokens;
      }
      ASSERT_LE(took, chunk);
      now += took;
      for (const Arrived& one : waiting) ASSERT_LE(now, one.due) << seed;
      std::erase_if(waiting, [](const Arrived& one) { return one.left == 0; });
    }
  }
}

}  // namespace
}  // namespace fasa::serve
