#include "runtime/llm/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "runtime/base/error.h"

namespace fasa {
namespace {

TEST(SamplerTest, GreedyTakesTheLowestOfEqualsAndNoNan) {
  Sampler sampler({});
  EXPECT_EQ(sampler.next(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(sampler.next(std::vector<float>{NAN, -2, NAN, -1}), 3);
  EXPECT_EQ(sampler.next(std::vector<float>{-INFINITY, -INFINITY}), 0);
  EXPECT_EQ(sampler.next(std::vector<float>{0, INFINITY, INFINITY}), 1);
  EXPECT_EQ(sampler.next(std::vector<float>{5}), 0);
}

TEST(SamplerTest, SameSeedSameTokens) {
  const std::vector<float> logits = {0, 1, 2, 1, 0, NAN, -INFINITY};
  Sampler a({.temperature = 1, .seed = 4});
  Sampler b({.temperature = 1, .seed = 4});
  Sampler c({.temperature = 1, .seed = 5});
  int differ = 0;
  for (int i = 0; i < 200; ++i) {
    const int32_t token = a.next(logits);
    EXPECT_EQ(token, b.next(logits));
    EXPECT_LT(token, 5);
    differ += token != c.next(logits);
  }
  EXPECT_GT(differ, 0);
}

TEST(SamplerTest, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits = {0, std::log(3.0f)};
  Sampler sampler({.temperature = 1, .seed = 1});
  int ones = 0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) ones += sampler.next(logits);
  // Binomial: standard deviation 0.0068.
  EXPECT_NEAR(ones / static_cast<double>(kDraws), 0.75, 0.03);
}

std::set<int32_t> drawn(const Sampling& sampling, const std::vector<float>& logits) {
  Sampler sampler(sampling);
  std::set<int32_t> tokens;
  for (int i = 0; i < 500; ++i) tokens.insert(sampler.next(logits));
  return tokens;
}

TEST(SamplerTest, TopKAndTopPCut) {
  const std::vector<float> logits = {0, 0, 1, 1, 0};
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 3}, logits), (std::set<int32_t>{0, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 99}, logits), (std::set<int32_t>{0, 1, 2, 3, 4}));
  // Probabilities 0.322 twice, then 0.118.
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.6f}, logits), (std::set<int32_t>{2, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.3f}, logits), (std::set<int32_t>{2}));
  EXPECT_EQ(drawn({.temperature = 1e-3f}, {1, 2, 0}), (std::set<int32_t>{1}));
}

TEST(SamplerTest, ImpossibleOptions) {
  EXPECT_THROW(Sampler({.temperature = -1}), UsageError);
  EXPECT_THROW(Sampler({.temperature = NAN}), UsageError);
  EXPECT_THROW(Sampler({.top_k = -1}), UsageError);
  EXPECT_THROW(Sampler({.top_p = 0}), UsageError);
  EXPECT_THROW(Sampler({.top_p = 1.5f}), UsageError);
}

}  // namespace
}  // namespace fasa
