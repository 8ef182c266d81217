// The size of prompt chunks beside streaming requests follows from measured step times.
#include "runtime/serve/prefill_budget.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fasa::serve {
namespace {

// A machine whose chunks take a fixed time plus a time per token.
struct Machine {
  double fixed = 0;
  double per_token = 0;

  double seconds(int tokens) const { return fixed + per_token * tokens; }
  // Runs chunks of the size that the budget allows, `chunks` times.
  int settle(PrefillBudget* budget, int chunks) const {
    for (int i = 0; i < chunks; ++i)
      budget->prefilled(budget->chunk(true), seconds(budget->chunk(true)));
    return budget->chunk(true);
  }
};

TEST(PrefillBudget, TakesTheLargestChunkWithoutStreams) {
  PrefillBudget budget(0, 512);
  budget.decoded(0.01);
  budget.prefilled(512, 10);
  EXPECT_EQ(budget.chunk(false), 512);
}

TEST(PrefillBudget, OtherWorkGetsHalfOfWhatDecodeStepsLeave) {
  PrefillBudget automatic(0, 512), limited(0.05, 512);
  for (PrefillBudget* budget : {&automatic, &limited}) budget->decoded(0.02);
  EXPECT_DOUBLE_EQ(automatic.piece_seconds(true), 0.03);
  EXPECT_DOUBLE_EQ(limited.piece_seconds(true), 0.015);
  limited.decoded(1);
  EXPECT_EQ(limited.piece_seconds(true), 0);
  EXPECT_GT(automatic.piece_seconds(false), 1e9);
}

// A new request waits for a step of a prompt even if nothing decodes.
TEST(PrefillBudget, StepsWithoutStreamsTakeTheirTime) {
  PrefillBudget budget(0, 512, 0.05);
  EXPECT_EQ(budget.chunk(false), PrefillBudget::kFirstIdle);
  EXPECT_EQ(budget.slot_seconds(false), 0.05);
  const Machine machine{.fixed = 0.002, .per_token = 1e-3};
  for (const int tokens : {64, 16, 64, 64, 64, 64}) {
    budget.prefilled(tokens, machine.seconds(tokens));
  }
  EXPECT_NEAR(machine.seconds(budget.chunk(false)), 0.05, 0.003);
  // A tenth of a step at most is what each step costs.
  EXPECT_NEAR(budget.chunk(false, 0.03), 9 * 32, 10);
}

TEST(PrefillBudget, ASlotIsWhatTheDecodeStepLeaves) {
  PrefillBudget automatic(0, 512, 0.05), limited(0.05, 512, 0.05);
  for (PrefillBudget* budget : {&automatic, &limited}) budget->decoded(0.02);
  EXPECT_DOUBLE_EQ(automatic.slot_seconds(true), 0.06);
  EXPECT_DOUBLE_EQ(limited.slot_seconds(true), 0.03);
  limited.decoded(1);
  EXPECT_EQ(limited.slot_seconds(true), 0);
  EXPECT_EQ(automatic.useful_share(true), PrefillBudget::kUsefulShare);
  EXPECT_EQ(limited.useful_share(true), 0);
}

TEST(PrefillBudget, BeginsWithTheLeastChunk) {
  EXPECT_EQ(PrefillBudget(0, 512).chunk(true), PrefillBudget::kMinChunk);
  EXPECT_EQ(PrefillBudget(0, 8).chunk(true), 8);
}

TEST(PrefillBudget, SlotsOfLongDecodeStepsAreShorter) {
  for (const auto& [decode, slot] : {std::pair{0.01, 0.03}, {0.04, 0.06}, {0.3, 0.3}}) {
    PrefillBudget budget(0, 512);
    budget.decoded(decode);
    EXPECT_DOUBLE_EQ(budget.slot_seconds(true), slot);
  }
}

TEST(PrefillBudget, FillsThreeDecodeStepsWhereChunksCostNothingBeforeTheirTokens) {
  PrefillBudget budget(0, 512);
  budget.decoded(0.02);
  const Machine machine{.fixed = 0, .per_token = 2e-4};
  EXPECT_NEAR(machine.settle(&budget, 50), 300, 3);
  EXPECT_NEAR(budget.fixed_seconds(), 0, 1e-9);
}

TEST(PrefillBudget, FindsTheFixedCostFromChunksOfTwoSizes) {
  PrefillBudget budget(0, 512);
  const Machine machine{.fixed = 0.02, .per_token = 8e-4};
  budget.prefilled(512, machine.seconds(512));
  EXPECT_NEAR(budget.fixed_seconds(), 0, 1e-9) << "one size says nothing";
  budget.prefilled(16, machine.seconds(16));
  EXPECT_NEAR(budget.fixed_seconds(), 0.02, 1e-3);
}

TEST(PrefillBudget, SpendsMostOfAChunkOnItsTokens) {
  PrefillBudget budget(0, 512);
  budget.decoded(0.01);
  const Machine machine{.fixed = 0.02, .per_token = 8e-4};
  budget.prefilled(512, machine.seconds(512));
  const int chunk = machine.settle(&budget, 50);
  EXPECT_NEAR(machine.per_token * chunk / machine.seconds(chunk), PrefillBudget::kUsefulShare,
              0.03);
}

TEST(PrefillBudget, ContextsThatMakeTokensDearerMakeChunksSmaller) {
  PrefillBudget budget(0, 512);
  budget.decoded(0.001);
  Machine machine{.fixed = 0.002, .per_token = 3e-5};
  budget.prefilled(512, machine.seconds(512));
  const int before = machine.settle(&budget, 50);
  machine.per_token *= 100;
  EXPECT_GT(before, 100);
  EXPECT_EQ(machine.settle(&budget, 50), PrefillBudget::kMinChunk);
  EXPECT_NEAR(budget.fixed_seconds(), 0.002, 1e-4) << "a constant of the model";
}

// A prompt of 131,072 tokens beside a stream: rows of 16 GiB on the host, a link of 12.6 GB/s.
struct LongPrompt {
  int chunks = 0;
  double seconds = 0;
  double longest = 0;  // of a chunk

  explicit LongPrompt(double max_step_seconds, bool hidden) {
    PrefillBudget budget(max_step_seconds, 512);
    budget.decoded(0.025);
    for (int64_t done = 0; done < 131072; ++chunks) {
      const double link = static_cast<double>(done) * 131072 / 12.6e9;
      const int tokens = budget.chunk(true, link);
      const double own = 0.015 + tokens * (4e-4 + 1e-8 * static_cast<double>(done));
      const double took = hidden ? std::max(own, link) : own + link;
      budget.prefilled(tokens, took, link);
      budget.decoded(0.025);
      done += tokens;
      seconds += took + 0.025;
      longest = std::max(longest, took);
    }
  }
};

TEST(PrefillBudget, RowsThatEachChunkReadsAgainMakeChunksLarge) {
  for (const bool hidden : {false, true}) {
    for (const double limit : {0.0, 0.1}) {
      const LongPrompt prompt(limit, hidden);
      EXPECT_LT(prompt.chunks, 600) << "hidden " << hidden << ", limit " << limit;
      EXPECT_LT(prompt.seconds, 450);
      EXPECT_LT(prompt.longest, 2.5);
    }
  }
}

TEST(PrefillBudget, KeepsALimitThatWasAskedFor) {
  PrefillBudget budget(0.05, 512);
  budget.decoded(0.01);
  const Machine machine{.fixed = 0.02, .per_token = 5e-4};
  budget.prefilled(512, machine.seconds(512));
  const int chunk = machine.settle(&budget, 50);
  EXPECT_NEAR(0.01 + machine.seconds(chunk), 0.05, 0.002);
}

TEST(PrefillBudget, GoesOnWithTheLeastChunkWhereNoTimeIsLeft) {
  PrefillBudget budget(0.005, 512);
  budget.decoded(0.01);
  budget.prefilled(64, 0.1);
  EXPECT_EQ(budget.chunk(true), PrefillBudget::kMinChunk);
}

}  // namespace
}  // namespace fasa::serve
