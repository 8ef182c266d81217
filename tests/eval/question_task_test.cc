// How questions are asked: forks, turns, questions that are prefilled, right answers compared.
#include "runtime/eval/tasks/question_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/eval/shared_prompt.h"
#include "runtime/eval/step_logits.h"
#include "runtime/eval/step_scores.h"
#include "runtime/eval/tasks/needle_task.h"
#include "runtime/llm/generation/divergence.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

class QuestionTaskTest : public ::testing::Test {
 protected:
  NeedleTask task(const QuestionOptions& options, int facts = 3) const {
    return {read_eval_texts({source_path("models/texts/ruth.txt")}, tokenizer_.get()),
            NeedleTemplate::of_model(llm_test::bundled_dir()), *tokenizer_,
            NeedleOptions{.question = options, .facts = facts}};
  }
  std::unique_ptr<Runtime> fasa(int64_t tokens) {
    Config config;
    config.selection.fac_tokens = {{.tokens = tokens, .share = 0}};
    config.selection.low_bit_tokens = TokenCount{};
    const Geometry geometry = model_.config().geometry();
    return std::make_unique<Runtime>(*device_, config, geometry, DType::kF32,
                                     all_slice_dims(geometry));
  }

  std::unique_ptr<Device> device_ = llm_test::open_test_device("cpu");
  Model model_ = Model::load(llm_test::bundled_dir(), *device_, DType::kF32);
  std::unique_ptr<text::Tokenizer> tokenizer_ =
      text::Tokenizer::load_if_present(llm_test::bundled_dir());
};

TEST(ShareFound, IgnoresCaseAndCountsParts) {
  EXPECT_EQ(share_found({"Ab", "cd"}, "..aB.."), 0.5);
  EXPECT_EQ(share_found({"1"}, ""), 0);
  EXPECT_EQ(share_found({}, "x"), 0);
}

TEST_F(QuestionTaskTest, TurnsFollowEachOtherAndFactsAreRecalled) {
  const auto full = llm_test::full_runtime(model_);
  const QuestionOptions turns{.context = 900, .turns = true};
  EXPECT_EQ(task(turns).name(), "turns 900");
  const Json record = task(turns).run(1, {model_, *full});
  ASSERT_EQ(record.at("questions").size(), 3);
  EXPECT_EQ(record["questions"][2]["turn"], 3);
  EXPECT_GE(record.at("right"), 2);
  EXPECT_EQ(record.at("asked"), 3);
  EXPECT_EQ(full->memory().device_rows, 0) << "everything was freed";
}

TEST_F(QuestionTaskTest, TheFirstTokenAfterAPrefilledQuestionIsExact) {
  const auto full = llm_test::full_runtime(model_), few = fasa(24);
  for (const bool prefill : {false, true}) {
    NeedleTask made = task({.context = 900, .prefill = prefill}, 1);
    StepLogits exact, sparse;
    made.run(1, {model_, *full, nullptr, &exact});
    made.run(1, {model_, *few, nullptr, &sparse});
    ASSERT_GT(sparse.steps(), 1);
    const double first = kl_divergence(exact.at(0), sparse.at(0));
    EXPECT_EQ(first < 1e-9, prefill) << first;
    EXPECT_GT(kl_divergence(exact.at(1), sparse.at(1)), 1e-9) << "the answer is decoded";
    EXPECT_EQ(made.setup().contains("question"), prefill);
  }
}

TEST_F(QuestionTaskTest, RightAnswersAreComparedTokenByToken) {
  NeedleTask made = task({.context = 900});
  const auto full = llm_test::full_runtime(model_), few = fasa(24);
  StepLogits logits;
  const Json whole = made.run(2, {model_, *full, nullptr, &logits});
  EXPECT_EQ(whole.at("scored_tokens"), made.compared_steps());
  EXPECT_EQ(logits.steps(), 18) << "3 answers of 5 digits and a mark";
  EXPECT_FALSE(whole.contains("kl"));
  const Json same = made.run(2, {model_, *fasa(1024), nullptr, nullptr, &logits});
  EXPECT_NEAR(same.at("kl").get<double>(), 0, 1e-6);
  EXPECT_EQ(same.at("same_best"), 18);
  const Json sparse = made.run(2, {model_, *few, nullptr, nullptr, &logits});
  EXPECT_GT(sparse.at("kl"), 1e-5);
  EXPECT_NE(sparse.at("nll"), whole.at("nll"));
}

TEST_F(QuestionTaskTest, TheRightAnswerIsComplete) {
  NeedleTask made = task({.context = 900});
  const Question question = made.make(0).questions.front();
  EXPECT_TRUE(made.is_complete(question, question.answer));
  EXPECT_EQ(made.score(question, question.answer), 1);
  EXPECT_EQ(question.answer.back(), '.');
}

}  // namespace
}  // namespace fasa
