// Log-probabilities against their definition.
#include "runtime/llm/generation/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fasa {
namespace {

TEST(LogprobsTest, AreThoseOfTheSoftmax) {
  const std::vector<float> logits = {1, 3, 2, 3, -INFINITY, NAN};
  const TokenLogprobs result = logprobs_of(logits, 2, 4);
  const double all = std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0));
  EXPECT_EQ(result.id, 2);
  EXPECT_NEAR(result.logprob, 2 - all, 1e-12);
  ASSERT_EQ(result.top.size(), 4u);
  EXPECT_EQ(result.top[0].first, 1);  // the lower id among equals
  EXPECT_EQ(result.top[1].first, 3);
  EXPECT_EQ(result.top[2].first, 2);
  EXPECT_EQ(result.top[3].first, 0);
  EXPECT_NEAR(result.top[3].second, 1 - all, 1e-12);
}

TEST(LogprobsTest, LargeLogitsAndFewTokens) {
  const TokenLogprobs result = logprobs_of(std::vector<float>{1e30f, 1e30f}, 1, 20);
  EXPECT_NEAR(result.logprob, -std::log(2.0), 1e-12);
  EXPECT_EQ(result.top.size(), 2u);
  EXPECT_TRUE(logprobs_of(std::vector<float>{0}, 0, 0).top.empty());
}

}  // namespace
}  // namespace fasa
