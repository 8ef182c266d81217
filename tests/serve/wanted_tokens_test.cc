#include "runtime/serve/wanted_tokens.h"

#include <gtest/gtest.h>

namespace fasa::serve {
namespace {

TokenLog log_of(int64_t prefilled, int64_t decoded) {
  TokenLog log;
  for (int64_t i = 0; i < prefilled + decoded; ++i) {
    log.append(static_cast<int32_t>(i), i < prefilled ? Computed::kPrefill : Computed::kDecode);
  }
  return log;
}

WantedTokens tokens(int count, std::vector<int64_t> marks = {}) {
  return WantedTokens(std::vector<int32_t>(static_cast<size_t>(count)), std::move(marks));
}

TEST(WantedTokens, KnownTokensAreComputedAsBefore) {
  WantedTokens wanted = tokens(10);
  wanted.set_known(log_of(4, 2), 3);
  EXPECT_EQ(wanted.left(1, StepMode::kPrefill), 3);
  EXPECT_EQ(wanted.left(1, StepMode::kDecode), 0);
  EXPECT_EQ(wanted.left(4, StepMode::kDecode), 2);
  EXPECT_EQ(wanted.left(6, StepMode::kPrefill), 4) << "the turn is too long for decode steps";
  EXPECT_FALSE(wanted.decodes_from(4));
  EXPECT_EQ(wanted.mode(10), StepMode::kDecode);
}

TEST(WantedTokens, TheFirstCallDecidesHowTheTurnIsComputed) {
  WantedTokens wanted = tokens(8);
  wanted.set_known(log_of(4, 2), 2);
  EXPECT_TRUE(wanted.decodes_from(4));
  wanted.set_known({}, 0);
  EXPECT_TRUE(wanted.decodes_from(0));
}

TEST(WantedTokens, StepsEndAtMarks) {
  const WantedTokens wanted = tokens(10, {0, 6});
  EXPECT_EQ(wanted.left(2, StepMode::kPrefill), 4);
  EXPECT_EQ(wanted.left(6, StepMode::kPrefill), 4);
}

TEST(WantedTokens, TokensOfTheAnswerAreRecomputed) {
  WantedTokens wanted = tokens(5);
  wanted.recompute(log_of(3, 0));
  EXPECT_EQ(wanted.size(), 5);
  wanted.recompute(log_of(5, 2));
  EXPECT_EQ(wanted.size(), 7);
  EXPECT_EQ(wanted.left(0, StepMode::kPrefill), 5);
  EXPECT_TRUE(wanted.decodes_from(5));
}

}  // namespace
}  // namespace fasa::serve
