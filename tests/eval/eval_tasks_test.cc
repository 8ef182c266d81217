// The tasks perplexity and needle on the bundled model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/eval/perplexity.h"
#include "runtime/eval/shared_prompt.h"
#include "runtime/eval/step_logits.h"
#include "runtime/eval/step_scores.h"
#include "runtime/eval/tasks/needle_task.h"
#include "runtime/llm/generation/divergence.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;

class EvalTasksTest : public ::testing::Test {
 protected:
  std::vector<EvalText> text(size_t bytes) const {
    auto texts = read_eval_texts({source_path("models/texts/ruth.txt")}, tokenizer_.get());
    texts[0].bytes.resize(bytes);
    texts[0].ids.resize(bytes);
    return texts;
  }
  NeedleTask needle(const NeedleOptions& options) const {
    return NeedleTask(text(13000), NeedleTemplate::of_model(llm_test::bundled_dir()), *tokenizer_,
                      options);
  }
  std::unique_ptr<Runtime> fasa(int64_t tokens, int chunks = 32) {
    Config config;
    config.preset = "fasa-c";
    config.apply_preset();
    config.selection.fac_tokens = {{.tokens = tokens, .share = 0}};
    config.selection.tip_chunks = chunks;
    const Geometry geometry = model_.config().geometry();
    std::vector<int16_t> dims;  // of the fastest FCs, which tell nearby tokens apart
    for (int head = 0; head < geometry.layers * geometry.kv_heads; ++head) {
      for (int chunk = 0; chunk < chunks; ++chunk) {
        dims.push_back(static_cast<int16_t>(chunk));
        dims.push_back(static_cast<int16_t>(chunk + 32));
      }
    }
    return std::make_unique<Runtime>(*device_, config, geometry, DType::kF32, dims);
  }

  std::unique_ptr<Device> device_ = llm_test::open_test_device("cpu");
  Model model_ = Model::load(llm_test::bundled_dir(), *device_, DType::kF32);
  std::unique_ptr<text::Tokenizer> tokenizer_ =
      text::Tokenizer::load_if_present(llm_test::bundled_dir());
};

TEST(NegativeLogLikelihood, KnownValues) {
  const std::array logits = {0.0f, std::log(3.0f), -std::numeric_limits<float>::infinity()};
  EXPECT_NEAR(negative_log_likelihood(logits, 0), std::log(4.0), 1e-7);
  EXPECT_NEAR(negative_log_likelihood(logits, 1), std::log(4.0 / 3.0), 1e-7);
  EXPECT_TRUE(std::isinf(negative_log_likelihood(logits, 2)));
  const std::array broken = {std::nanf(""), 1.0f};
  EXPECT_TRUE(std::isinf(negative_log_likelihood(broken, 1)));
}

// Decoding with every token attended to gives the results of one prefill over the same window.
TEST_F(EvalTasksTest, PerplexityOfFullAttentionIsThatOfOnePass) {
  const auto texts = text(300);
  PerplexityTask task(texts, {.context = 200, .stride = 50});
  ASSERT_EQ(task.examples(), 2);
  const auto runtime = llm_test::full_runtime(model_);
  const auto record = task.run(1, {model_, *runtime});
  const std::span<const int32_t> window(texts[0].ids.data() + 50, 200);
  const auto logits = llm_test::prefill_logits(model_, window, 200);
  double loss = 0;
  for (size_t at = 150; at < 200; ++at) {
    loss +=
        negative_log_likelihood(std::span(logits).subspan(at * 256, 256), texts[0].ids[51 + at]);
  }
  EXPECT_NEAR(record.at("nll").get<double>(), loss, 1e-3);
  EXPECT_EQ(record.at("tokens"), 50);
  EXPECT_GT(loss / 50, 0.5);
}

TEST_F(EvalTasksTest, TheSelectionIsOnWhilePerplexityIsMeasured) {
  PerplexityTask task(text(600), {.context = 500, .stride = 100});
  const auto loss = [&](std::unique_ptr<Runtime> runtime) {
    return task.run(0, {model_, *runtime}).at("nll").get<double>();
  };
  const double full = loss(llm_test::full_runtime(model_));
  EXPECT_NE(loss(fasa(24)), full);
  EXPECT_EQ(loss(fasa(512)), loss(fasa(1024))) << "as many as there are";
}

TEST_F(EvalTasksTest, PredictionsAreComparedStepByStep) {
  PerplexityTask task(text(600), {.context = 500, .stride = 60});
  StepLogits full, few;
  const auto of_full = task.run(0, {.model = model_,
                                    .runtime = *llm_test::full_runtime(model_),
                                    .prompt = nullptr,
                                    .keep = &full});
  EXPECT_FALSE(of_full.contains("kl"));
  ASSERT_EQ(full.steps(), static_cast<size_t>(task.compared_steps()));
  const auto record = [&](int64_t tokens) {
    few.clear();
    const auto runtime = fasa(tokens);
    return task.run(
        0,
        {.model = model_, .runtime = *runtime, .prompt = nullptr, .keep = &few, .against = &full});
  };
  const auto whole = record(512);
  EXPECT_EQ(whole.at("kl"), 0);
  EXPECT_EQ(whole.at("same_best"), 60);
  const auto pruned = record(24);
  double kl = 0;
  int same = 0;
  for (size_t step = 0; step < full.steps(); ++step) {
    kl += kl_divergence(full.at(step), few.at(step));
    same += best_token(full.at(step)) == best_token(few.at(step)) ? 1 : 0;
  }
  EXPECT_EQ(pruned.at("kl"), kl);
  EXPECT_GT(kl, 0);
  EXPECT_EQ(pruned.at("same_best"), same);
}

// A window that begins inside a page and a stride of several pages: equal bit for bit, with low-bit
// sets too.
TEST_F(EvalTasksTest, OnePassIsWhatStepsGive) {
  const auto texts = text(600);
  PerplexityTask stepping(texts, {.context = 430, .stride = 90});
  PerplexityTask at_once(texts, {.context = 430, .stride = 90, .one_pass = true});
  const auto run = [&](PerplexityTask& task, const Config& config, StepLogits* logits) {
    const Geometry geometry = model_.config().geometry();
    Runtime runtime(*device_, config, geometry, DType::kF32, all_slice_dims(geometry));
    return task.run(1, {.model = model_, .runtime = runtime, .prompt = nullptr, .keep = logits});
  };
  struct Case {
    const char* kind;
    int64_t low_bit;
  };
  for (const Case& of : {Case{"fasa", 0}, {"fasa", 100}, {"oracle", 0}, {"snapkv", 0}}) {
    SCOPED_TRACE(of.kind);
    Config config;
    config.selection.kind = find_selection(of.kind).value();
    config.selection.fac_tokens = {{.tokens = 40, .share = 0}};
    config.selection.low_bit_tokens = {.tokens = of.low_bit, .share = 0};
    StepLogits one_by_one, together;
    EXPECT_EQ(run(stepping, config, &one_by_one), run(at_once, config, &together));
    ASSERT_EQ(one_by_one.steps(), together.steps());
    for (size_t step = 0; step < together.steps(); ++step) {
      const auto a = one_by_one.at(step), b = together.at(step);
      ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << "step " << step;
    }
  }
}

// Runtimes that share the computation of one prompt give the same records as runtimes run alone.
TEST_F(EvalTasksTest, APromptIsComputedOnceForSeveralRuntimes) {
  PerplexityTask perplexity(text(1200), {.context = 700, .stride = 40});
  const NeedleTask made = needle({.question = {.context = 700}});
  NeedleTask recall = made;
  for (EvalTask* task : {static_cast<EvalTask*>(&perplexity), static_cast<EvalTask*>(&recall)}) {
    const auto full = llm_test::full_runtime(model_);
    const auto few = fasa(24), more = fasa(64);
    SharedPrompt prompt;
    for (Runtime* runtime : {full.get(), few.get(), more.get()}) {
      const auto alone = task->run(0, {model_, *runtime});
      EXPECT_EQ(task->run(0, {model_, *runtime, &prompt}), alone) << task->name();
    }
    EXPECT_NE(full->memory().device_rows, 0) << "keeps the prompt";
    prompt.forget();
  }
}

TEST_F(EvalTasksTest, AnotherPromptIsComputed) {
  SharedPrompt prompt;
  const auto full = llm_test::full_runtime(model_);
  DecodeRun first(model_, *full, 200, &prompt), second(model_, *full, 200);
  const std::vector<int32_t> ids(150, 'a'), others(150, 'b');
  first.prefill(ids);
  EXPECT_FALSE(prompt.copy_to(second, others));
  EXPECT_EQ(second.length(), 0);
  EXPECT_FALSE(prompt.copy_to(second, std::span(ids).first(149)));
  EXPECT_TRUE(prompt.copy_to(second, ids));
  EXPECT_EQ(second.length(), 150);
  prompt.forget();
}

// The prompt is longer than what layers with windows keep: it is still copied whole.
TEST_F(EvalTasksTest, APromptIsComputedOnceWithWindowsToo) {
  for (const char* name : {"gemma3", "mistral-window"}) {
    SCOPED_TRACE(name);
    Model model = Model::load(llm_test::golden_dir(name), *device_, DType::kF32);
    auto texts = text(4200);
    for (int32_t& id : texts[0].ids) id %= 64;
    PerplexityTask task(std::move(texts), {.context = 4100, .stride = 8});
    Config config;
    config.selection.fac_tokens = {{.tokens = 40, .share = 0}};
    const Geometry geometry = model.config().geometry();
    const auto full = llm_test::full_runtime(model);
    const auto fasa = std::make_unique<Runtime>(*device_, config, geometry, DType::kF32,
                                                all_slice_dims(geometry));
    SharedPrompt prompt;
    for (Runtime* runtime : {full.get(), fasa.get()}) {
      const auto alone = task.run(0, {model, *runtime});
      EXPECT_EQ(task.run(0, {model, *runtime, &prompt}), alone);
    }
    prompt.forget();
  }
}

TEST_F(EvalTasksTest, WindowsLieAStrideApartAndNeverCrossTexts) {
  auto texts = text(1000);
  texts.push_back(text(501)[0]);
  PerplexityTask task(std::move(texts), {.context = 500, .stride = 200});
  std::vector<std::string> ids;
  for (size_t i = 0; i < task.examples(); ++i) ids.push_back(task.id(i));
  EXPECT_THAT(ids, ::testing::ElementsAre("0@0", "1@0", "0@200", "0@400"));
}

TEST_F(EvalTasksTest, TextsTooShortAndWindowsTooWideAreRefused) {
  EXPECT_THROW(PerplexityTask(text(500), {.context = 500, .stride = 100}), InputError);
  EXPECT_THROW((PerplexityOptions{.context = 100, .stride = 100}.validate(8192)), UsageError);
  EXPECT_THROW((PerplexityOptions{.context = 9000, .stride = 100}.validate(8192)), UsageError);
  EXPECT_THROW((NeedleOptions{.depths = {1.5}}.validate(8192)), UsageError);
  EXPECT_THROW((NeedleOptions{.facts = 0}.validate(8192)), UsageError);
  EXPECT_THROW(needle({.question = {.context = 60}}), UsageError);
  EXPECT_THROW(needle({.question = {.context = 14000}}), InputError);
}

TEST_F(EvalTasksTest, EveryDepthHasItsTurnAndFactsLieThere) {
  const NeedleTask task = needle({.question = {.context = 1000}});
  std::map<double, int> depths;
  for (size_t i = 0; i < 8; ++i) {
    const auto made = task.make(i);
    EXPECT_LE(made.ids.size(), 1000);
    EXPECT_GT(made.ids.size(), 950);
    const std::string text = tokenizer_->decode(made.ids);
    for (const auto& question : made.questions) {
      const auto depth = question.about.at("depth").get<double>();
      ++depths[depth];
      const size_t at = text.find(question.references.front());
      ASSERT_NE(at, std::string::npos);
      EXPECT_NEAR(static_cast<double>(at) / 1000, depth, 0.06);
    }
  }
  EXPECT_EQ(depths.size(), 8);
  for (const auto& [depth, count] : depths) EXPECT_EQ(count, 4) << depth;
}

TEST_F(EvalTasksTest, TheModelRecallsFactsAndABlindSelectionForgetsThem) {
  NeedleTask task = needle({.question = {.context = 600}, .seed = 3});
  const auto right = [&](Runtime& runtime) {
    int sum = 0;
    for (size_t i = 0; i < 3; ++i) {
      const auto record = task.run(i, {model_, runtime});
      EXPECT_EQ(record.at("asked"), 4);
      sum += record.at("right").get<int>();
    }
    return sum;
  };
  const auto full = llm_test::full_runtime(model_);
  EXPECT_GE(right(*full), 10) << "of 12";
  const auto wide = fasa(600);
  EXPECT_EQ(right(*wide), right(*full));
  const auto blind = fasa(21, 1);  // sinks, recent tokens and one more chosen by one FC
  EXPECT_LT(right(*blind), 6);
}

TEST_F(EvalTasksTest, ExamplesDependOnTheSeedAlone) {
  const auto ids = [&](uint64_t seed) {
    return needle({.question = {.context = 600}, .examples = 5, .seed = seed}).make(2).ids;
  };
  EXPECT_EQ(ids(1), ids(1));
  EXPECT_NE(ids(1), ids(2));
}

}  // namespace
}  // namespace fasa
