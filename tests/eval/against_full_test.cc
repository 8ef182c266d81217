// The comparison of predicted distributions with those of full attention: known distributions, and
// the bundled model's.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "runtime/eval/against_full.h"
#include "runtime/eval/step_logits.h"

namespace fasa {
namespace {

using Json = nlohmann::json;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(KlDivergence, KnownValues) {
  const std::array even = {1.0f, 1.0f};              // 1/2, 1/2
  const std::array tilted = {std::log(3.0f), 0.0f};  // 3/4, 1/4
  const std::array certain = {700.0f, -kInfinity};   // 1, 0
  const std::array broken = {std::nanf(""), 0.0f};
  EXPECT_EQ(kl_divergence(tilted, tilted), 0);
  EXPECT_NEAR(kl_divergence(even, tilted), 0.5 * std::log(4.0 / 3.0), 1e-7);
  EXPECT_NEAR(kl_divergence(tilted, even), 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-7);
  EXPECT_NEAR(kl_divergence(certain, even), std::log(2.0), 1e-12) << "what has no chance adds none";
  EXPECT_TRUE(std::isinf(kl_divergence(even, certain)));
  EXPECT_TRUE(std::isinf(kl_divergence(broken, even)));
  EXPECT_TRUE(std::isinf(kl_divergence(even, broken)));
}

TEST(BestToken, TheFirstOfEqualOnes) {
  EXPECT_EQ(best_token(std::array{1.0f, 3.0f, 3.0f, 2.0f}), 1);
}

TEST(StepLogits, KeepsSteps) {
  StepLogits kept;
  EXPECT_EQ(kept.steps(), 0u);
  kept.add(std::array{1.0f, 2.0f});
  kept.add(std::array{3.0f, 4.0f});
  ASSERT_EQ(kept.steps(), 2u);
  EXPECT_EQ(kept.at(1)[0], 3.0f);
  kept.clear();
  EXPECT_EQ(kept.steps(), 0u);
}

TEST(AgainstFull, PairsExamplesByTheirIds) {
  const std::array full = {Json{{"id", "a"}, {"tokens", 10}, {"nll", 20.0}},
                           Json{{"id", "b"}, {"tokens", 10}, {"nll", 50.0}},
                           Json{{"id", "c"}, {"tokens", 10}, {"nll", 10.0}}};
  const std::array method = {
      Json{{"id", "b"}, {"tokens", 10}, {"nll", 51.0}, {"kl", 0.4}, {"same_best", 8}},
      Json{{"id", "a"}, {"tokens", 10}, {"nll", 19.0}, {"kl", 0.2}, {"same_best", 10}},
      Json{{"id", "c"}, {"tokens", 10}, {"nll", 30.0}},  // from a run without full attention
      Json{{"id", "d"}, {"tokens", 10}, {"nll", 9.0}, {"kl", 9.0}, {"same_best", 0}}};
  const auto against = against_full(method, full);
  ASSERT_TRUE(against.has_value());
  EXPECT_EQ(against->examples, 2);
  EXPECT_EQ(against->tokens, 20);
  EXPECT_NEAR(against->kl.value, 0.03, 1e-12);
  EXPECT_NEAR(against->kl.low, 0.02, 1e-12);
  EXPECT_NEAR(against->kl.high, 0.04, 1e-12);
  EXPECT_NEAR(against->same_best.value, 0.9, 1e-12);
  EXPECT_NEAR(against->perplexity.value, 0, 1e-12) << "one a tenth of a nat up, one down";
  EXPECT_NEAR(against->perplexity.high, std::expm1(0.1), 1e-12);
  EXPECT_LT(against->kl.interval.low, 0.03);
  EXPECT_GT(against->kl.interval.high, 0.03);
  EXPECT_FALSE(against_full(std::span(method).subspan(2, 1), full).has_value());
}

}  // namespace
}  // namespace fasa
