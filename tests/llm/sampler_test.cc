#include "runtime/llm/generation/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

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

TEST(SamplerTest, MinPCutsByTheBestOnesProbability) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits = {std::log(4.0f), std::log(2.0f), 0, 0};
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.6f}, logits), (std::set<int32_t>{0}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.4f}, logits), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.2f}, logits), (std::set<int32_t>{0, 1, 2, 3}));
  // min_p applies after the temperature: at 0.5 the second token has a quarter of the first's
  // probability.
  EXPECT_EQ(drawn({.temperature = 0.5f, .min_p = 0.3f}, logits), (std::set<int32_t>{0}));
  // min_p applies after top_p: the total probability is that of all tokens, min_p is relative to
  // the best one.
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.8f, .min_p = 0.4f}, logits),
            (std::set<int32_t>{0, 1}));
}

// The definition: all tokens sorted, cut one by one.
class SortedSampler {
 public:
  explicit SortedSampler(const Sampling& sampling) : sampling_(sampling), random_(sampling.seed) {}

  int32_t next(std::span<const float> logits) {
    std::vector<std::pair<float, int32_t>> tokens;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!std::isnan(logits[i])) tokens.emplace_back(-logits[i], static_cast<int32_t>(i));
    }
    std::sort(tokens.begin(), tokens.end());
    if (sampling_.top_k > 0) tokens.resize(std::min<size_t>(tokens.size(), sampling_.top_k));
    std::vector<double> weights;
    for (const auto& token : tokens) {
      weights.push_back(
          std::exp((-static_cast<double>(token.first) + tokens[0].first) / sampling_.temperature));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    double kept = 0;
    size_t count = 0;
    while (count < weights.size() && (count == 0 || kept < sampling_.top_p * sum)) {
      kept += weights[count++];
    }
    while (count > 1 && weights[count - 1] < sampling_.min_p) --count;
    kept = std::accumulate(weights.begin(), weights.begin() + static_cast<ptrdiff_t>(count), 0.0);
    double point = static_cast<double>(random_() >> 11) * 0x1p-53 * kept;
    for (size_t i = 0; i < count; ++i) {
      point -= weights[i];
      if (point < 0) return tokens[i].second;
    }
    return tokens[count - 1].second;
  }

 private:
  Sampling sampling_;
  std::mt19937_64 random_;
};

std::vector<float> drawn_logits(std::mt19937& random) {
  const auto size = static_cast<size_t>(1 + random() % 3000);
  const float spread = std::array{0.0f, 0.01f, 1.0f, 3.0f, 40.0f}[random() % 5];
  std::normal_distribution<float> normal(-5, spread);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = spread == 0 ? 1.5f : normal(random);
  const bool coarse = random() % 3 == 0;  // many equals
  const bool spoilt = random() % 3 == 0;
  for (size_t i = 0; i + 1 < size; ++i) {  // the last one stays finite
    if (coarse) logits[i] = std::round(logits[i] * 2) / 2;
    if (spoilt && random() % 4 == 0) logits[i] = random() % 2 == 0 ? NAN : -INFINITY;
  }
  return logits;
}

TEST(SamplerTest, SameTokensAsWithAllSorted) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    Sampling sampling{.temperature = std::array{0.05f, 0.7f, 1.0f, 1.8f, 50.0f}[random() % 5],
                      .seed = random()};
    if (random() % 3 == 0) sampling.top_k = static_cast<int>(1 + random() % 3500);
    if (random() % 2 == 0) sampling.top_p = std::array{0.01f, 0.5f, 0.95f, 0.9999f}[random() % 4];
    if (random() % 2 == 0) sampling.min_p = std::array{1e-6f, 0.05f, 0.6f, 1.0f}[random() % 4];
    const std::vector<float> logits = drawn_logits(random);
    Sampler sampler(sampling);
    SortedSampler sorted(sampling);
    for (int i = 0; i < 25; ++i) {
      ASSERT_EQ(sampler.next(logits), sorted.next(logits))
          << "round " << round << ": " << logits.size() << " logits, temperature "
          << sampling.temperature << ", top_k " << sampling.top_k << ", top_p " << sampling.top_p
          << ", min_p " << sampling.min_p;
    }
  }
}

TEST(SamplerTest, PenaltiesCountWhatWasSaid) {
  const std::vector<float> logits = {2, 1.5f, -1, -2};
  // Positive logits are divided: 2 / 1.5 < 1.5. Negative ones are multiplied.
  Sampler repetition({.repetition_penalty = 1.5f});
  repetition.see_prompt(std::vector<int32_t>{0, 0, 99, -1});
  EXPECT_EQ(repetition.next(logits), 1);
  EXPECT_EQ(repetition.next(logits), 0);  // 1.33 against 1
  Sampler negative({.repetition_penalty = 3});
  negative.see_prompt(std::vector<int32_t>{2});
  EXPECT_EQ(negative.next(std::vector<float>{-4, -5, -1, -2}), 3);
  // With a window only the last tokens count, those of the prompt among them.
  Sampler window({.repetition_penalty = 3, .repetition_window = 2});
  window.see_prompt(std::vector<int32_t>{0, 1, 1});
  EXPECT_EQ(window.next(logits), 0);  // it left the window
  EXPECT_EQ(window.next(logits), 0);  // 0.67 against 0.5
  EXPECT_EQ(window.next(logits), 1);

  // Presence and frequency penalties ignore the prompt.
  Sampler presence({.presence_penalty = 0.6f});
  presence.see_prompt(std::vector<int32_t>{0});
  EXPECT_EQ(presence.next(logits), 0);
  EXPECT_EQ(presence.next(logits), 1);  // 1.4 against 1.5
  EXPECT_EQ(presence.next(logits), 0);  // 1.4 against 0.9, independent of the count
  EXPECT_EQ(presence.next(logits), 0);
  Sampler frequency({.frequency_penalty = 0.3f});
  EXPECT_EQ(frequency.next(logits), 0);  // then 1.7, 1.4, 1.1
  EXPECT_EQ(frequency.next(logits), 0);
  EXPECT_EQ(frequency.next(logits), 1);
  EXPECT_EQ(frequency.next(logits), 0);
}

TEST(SamplerTest, BiasForbidsAndForces) {
  const std::vector<float> logits = {2, 1, 0};
  EXPECT_EQ(Sampler({.logit_bias = {{0, -INFINITY}}}).next(logits), 1);
  EXPECT_EQ(Sampler({.logit_bias = {{2, 100}, {77, 5}}}).next(logits), 2);
  EXPECT_EQ(drawn({.temperature = 1, .logit_bias = {{0, -INFINITY}, {1, -INFINITY}}}, logits),
            (std::set<int32_t>{2}));
}

TEST(SamplerTest, ImpossibleOptions) {
  EXPECT_THROW(Sampler({.min_p = 1.5f}), UsageError);
  EXPECT_THROW(Sampler({.min_p = NAN}), UsageError);
  EXPECT_THROW(Sampler({.repetition_penalty = 0}), UsageError);
  EXPECT_THROW(Sampler({.presence_penalty = INFINITY}), UsageError);
  EXPECT_THROW(Sampler({.logit_bias = {{-1, 0}}}), UsageError);
  EXPECT_THROW(Sampler({.logit_bias = {{1, NAN}}}), UsageError);
  EXPECT_THROW(Sampler({.temperature = -1}), UsageError);
  EXPECT_THROW(Sampler({.temperature = NAN}), UsageError);
  EXPECT_THROW(Sampler({.top_k = -1}), UsageError);
  EXPECT_THROW(Sampler({.top_p = 0}), UsageError);
  EXPECT_THROW(Sampler({.top_p = 1.5f}), UsageError);
}

}  // namespace
}  // namespace fasa
