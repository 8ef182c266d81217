// Chunks of prompts beside those who stream: sized by what steps took.
#include "runtime/serve/pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fasa::serve {
namespace {

// A machine whose chunks take a fixed time and one by the token.
struct Machine {
  double fixed = 0;
  double per_token = 0;

  double seconds(int tokens) const { return fixed + per_token * tokens; }
  // Chunks as the pace wants them, until it has seen `chunks`.
  int settle(Pace* pace, int chunks) const {
    for (int i = 0; i < chunks; ++i) pace->prefilled(pace->chunk(true), seconds(pace->chunk(true)));
    return pace->chunk(true);
  }
};

TEST(Pace, TakesTheLargestChunkWhereNobodyStreams) {
  Pace pace(0, 512);
  pace.decoded(0.01);
  pace.prefilled(512, 10);
  EXPECT_EQ(pace.chunk(false), 512);
}

TEST(Pace, BeginsWithTheLeastChunk) {
  EXPECT_EQ(Pace(0, 512).chunk(true), Pace::kMinChunk);
  EXPECT_EQ(Pace(0, 8).chunk(true), 8);
}

TEST(Pace, FillsTwiceTheDecodeStepWhereChunksCostNothingBeforeTheirTokens) {
  Pace pace(0, 512);
  pace.decoded(0.02);
  const Machine machine{.fixed = 0, .per_token = 1e-4};
  EXPECT_NEAR(machine.settle(&pace, 50), 200, 2);
  EXPECT_NEAR(pace.fixed_seconds(), 0, 1e-9);
}

TEST(Pace, FindsTheFixedCostFromChunksOfTwoSizes) {
  Pace pace(0, 512);
  const Machine machine{.fixed = 0.02, .per_token = 8e-4};
  pace.prefilled(512, machine.seconds(512));
  EXPECT_NEAR(pace.fixed_seconds(), 0, 1e-9) << "one size says nothing";
  pace.prefilled(16, machine.seconds(16));
  EXPECT_NEAR(pace.fixed_seconds(), 0.02, 1e-3);
}

TEST(Pace, SpendsMostOfAChunkOnItsTokens) {
  Pace pace(0, 512);
  pace.decoded(0.01);
  const Machine machine{.fixed = 0.02, .per_token = 8e-4};
  pace.prefilled(512, machine.seconds(512));
  const int chunk = machine.settle(&pace, 50);
  EXPECT_NEAR(machine.per_token * chunk / machine.seconds(chunk), Pace::kUsefulShare, 0.03);
}

TEST(Pace, ContextsThatMakeTokensDearerMakeChunksSmaller) {
  Pace pace(0, 512);
  pace.decoded(0.001);
  Machine machine{.fixed = 0.002, .per_token = 3e-5};
  pace.prefilled(512, machine.seconds(512));
  const int before = machine.settle(&pace, 50);
  machine.per_token *= 100;
  EXPECT_GT(before, 100);
  EXPECT_EQ(machine.settle(&pace, 50), Pace::kMinChunk);
  EXPECT_NEAR(pace.fixed_seconds(), 0.002, 1e-4) << "a constant of the model";
}

TEST(Pace, KeepsALimitThatWasAskedFor) {
  Pace pace(0.05, 512);
  pace.decoded(0.01);
  const Machine machine{.fixed = 0.02, .per_token = 5e-4};
  pace.prefilled(512, machine.seconds(512));
  const int chunk = machine.settle(&pace, 50);
  EXPECT_NEAR(0.01 + machine.seconds(chunk), 0.05, 0.002);
}

TEST(Pace, GoesOnWithTheLeastChunkWhereNoTimeIsLeft) {
  Pace pace(0.005, 512);
  pace.decoded(0.01);
  pace.prefilled(64, 0.1);
  EXPECT_EQ(pace.chunk(true), Pace::kMinChunk);
}

}  // namespace
}  // namespace fasa::serve
