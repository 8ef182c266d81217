// The comparison of predicted distributions with those of full attention: known distributions, and
// the bundled model's.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/eval/against_full.h"
#include "runtime/eval/step_logits.h"
#include "runtime/llm/generation/divergence.h"

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

TEST(AgainstFull, CountsAnswersThatFullAttentionHasToo) {
  const auto record = [](const char* id, std::vector<double> scores) {
    Json questions = Json::array();
    for (const double score : scores) questions.push_back({{"score", score}});
    return Json{{"id", id}, {"tokens", 10}, {"questions", questions}};
  };
  const std::array full = {record("a", {1, 1, 0}), record("b", {0.5, 1, 1}), record("c", {0, 0})};
  const std::array method = {record("b", {0.5, 0, 1}), record("a", {1, 1, 0.25}), record("d", {1})};
  const auto against = against_full(method, full);
  ASSERT_TRUE(against.has_value());
  EXPECT_EQ(against->examples, 2);
  EXPECT_EQ(against->tokens, 0);
  ASSERT_TRUE(against->retained.has_value());
  EXPECT_EQ(against->retained->full, 4.5);
  EXPECT_EQ(against->retained->asked, 6);
  EXPECT_NEAR(against->retained->value, 3.75 / 4.5, 1e-12);
  EXPECT_LT(against->retained->interval.low, 0.7);
  EXPECT_GT(against->retained->interval.high, 1);
  const std::array none = {record("c", {1, 1})};
  EXPECT_FALSE(against_full(none, full)->retained.has_value()) << "full attention has no point";
  const std::array scored = {Json{{"id", "a"}, {"tokens", 3}, {"score", 40.0}}};
  const std::array scored_full = {Json{{"id", "a"}, {"tokens", 3}, {"score", 80.0}}};
  EXPECT_NEAR(against_full(scored, scored_full)->retained->value, 0.5, 1e-12);
}

TEST(AgainstFull, AStoredRecordThatWasChangedIsNamedSo) {
  const std::array full = {Json{{"id", "a"}, {"tokens", 1}, {"questions", {{{"score", "x"}}}}}};
  EXPECT_THROW(against_full(full, full), InputError);
}

// Answers' tokens count, not the prompt's.
TEST(AgainstFull, DistributionsOfRightAnswers) {
  const std::array full = {Json{{"id", "a"}, {"tokens", 999}, {"scored_tokens", 4}, {"nll", 1.0}}};
  const std::array method = {Json{{"id", "a"},
                                  {"tokens", 999},
                                  {"scored_tokens", 4},
                                  {"nll", 2.0},
                                  {"kl", 0.4},
                                  {"same_best", 3}}};
  const auto against = against_full(method, full);
  EXPECT_EQ(against->tokens, 4);
  EXPECT_NEAR(against->kl.value, 0.1, 1e-12);
  EXPECT_NEAR(against->perplexity.value, std::expm1(0.25), 1e-12);
}

}  // namespace
}  // namespace fasa
