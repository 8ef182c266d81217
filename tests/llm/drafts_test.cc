// Drafts: what is proposed, and that answers with drafts are, bit for bit, those without.
#include "runtime/llm/generation/drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/llm/generation/generator.h"
#include "tests/llm/llm_fixture.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

using namespace llm_test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Steps that take `token` seconds more for each token behind the first.
BatchTimes times_of(double token) {
  BatchTimes times;
  for (int i = 0; i < 100; ++i) times.measured(1 + i % 4, 1 + token * (i % 4));
  return times;
}

std::vector<int32_t> proposal(const std::vector<int32_t>& text, int most,
                              const std::vector<int32_t>& prediction = {}) {
  Drafts drafts(prediction, text);
  EXPECT_EQ(drafts.size(), text.size());
  const auto tokens = drafts.propose(most, 0, times_of(0));
  return {tokens.begin(), tokens.end()};
}

TEST(DraftsTest, WhatFollowedTheSameTokensIsProposed) {
  EXPECT_THAT(proposal({7, 1, 2, 3, 4, 5, 9, 1, 2, 3}, 2), ElementsAre(4, 5));
  EXPECT_THAT(proposal({7, 1, 2, 3, 4, 5, 9, 2, 3}, 2), IsEmpty());
  EXPECT_THAT(proposal({1, 2, 3}, 2), IsEmpty());
  EXPECT_THAT(proposal({1, 2}, 2), IsEmpty());
  EXPECT_THAT(proposal({}, 2), IsEmpty());
  EXPECT_THAT(proposal({7, 1, 2, 3, 4, 9, 1, 2, 3}, 0), IsEmpty());
}

TEST(DraftsTest, ALongerMatchComesBeforeANewerOne) {
  EXPECT_THAT(proposal({5, 1, 2, 3, 4, 6, 1, 2, 3, 8, 5, 1, 2, 3}, 1), ElementsAre(4));
  EXPECT_THAT(proposal({5, 1, 2, 3, 4, 6, 1, 2, 3, 8, 9, 1, 2, 3}, 1), ElementsAre(8));
}

TEST(DraftsTest, ATextThatRepeatsItselfGoesOn) {
  EXPECT_THAT(proposal({1, 2, 3, 1, 2, 3, 1, 2, 3}, 4), ElementsAre(1, 2, 3, 1));
  EXPECT_THAT(proposal({6, 6, 6, 6}, 3), ElementsAre(6, 6, 6));
}

TEST(DraftsTest, APredictionIsAnotherText) {
  EXPECT_THAT(proposal({9, 1, 2, 3}, 4, {1, 2, 3, 4, 5}), ElementsAre(4, 5));
  EXPECT_THAT(proposal({9, 1, 2, 3}, 4, {1, 2, 3}), IsEmpty());
  EXPECT_THAT(proposal({2, 3, 4}, 4, {1, 2}), IsEmpty());
}

// Drafts that are wrong, or cost as much as steps, are made less.
TEST(DraftsTest, AsManyAsPay) {
  std::vector<int32_t> text(40);
  std::iota(text.begin(), text.end(), 0);
  text.insert(text.end(), text.begin(), text.begin() + 20);
  const BatchTimes cheap = times_of(0.001), dear = times_of(1);
  Drafts drafts({}, text);
  EXPECT_EQ(drafts.propose(100, 0, cheap).size(), size_t{Drafts::kMost});
  EXPECT_THAT(drafts.propose(15, 0, dear), IsEmpty());
  for (int i = 0; i < 20; ++i) {
    drafts.propose(15, 0, cheap);
    drafts.judged(0);
  }
  EXPECT_LE(drafts.propose(15, 0, cheap).size(), 2u);
}

TEST(BatchTimesTest, TheLineThroughTheSteps) {
  BatchTimes times;
  EXPECT_GT(times.relative(4), times.relative(1));
  for (int i = 0; i < 200; ++i) times.measured(1, 0.02);
  EXPECT_NEAR(times.relative(1), 1, 1e-9);
  for (int i = 0; i < 200; ++i) times.measured(1 + i % 8, 0.02 + 0.002 * (i % 8));
  EXPECT_NEAR(times.relative(8) / times.relative(1), 0.034 / 0.02, 0.02);
  times.measured(1, 1e6);  // the machine slept
  EXPECT_NEAR(times.relative(8) / times.relative(1), 0.034 / 0.02, 0.3);
}

// Decodes tokens with right and wrong ones behind them, and keeps the right ones: logits and rows
// are those of steps of one token.
class DraftedTest : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  static constexpr size_t kPrompt = 48, kDecoded = 30;

  std::vector<float> one_by_one(Runtime& runtime) {
    std::vector<float> all;
    const SequenceId sequence = start(runtime);
    for (size_t i = kPrompt; i < tokens_.size(); ++i) {
      const StepSequence step[] = {{sequence, 1}};
      const auto logits = model_.step(runtime, {&tokens_[i], 1}, step);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  SequenceId start(Runtime& runtime) {
    const SequenceId sequence = runtime.create();
    logits_by_steps(model_, runtime, sequence, std::span(tokens_).first(kPrompt));
    return sequence;
  }

  std::vector<float> drafted(Runtime& runtime, SequenceId sequence, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> all;
    for (size_t i = kPrompt; i < tokens_.size();) {
      const int most =
          std::min<int>(runtime.info(sequence).max_drafted, static_cast<int>(tokens_.size() - i));
      const int count = 1 + static_cast<int>(random() % static_cast<uint32_t>(most));
      const int kept = 1 + static_cast<int>(random() % static_cast<uint32_t>(count));
      std::vector<int32_t> step_tokens(tokens_.begin() + static_cast<ptrdiff_t>(i),
                                       tokens_.begin() + static_cast<ptrdiff_t>(i) + kept);
      while (std::ssize(step_tokens) < count) {
        step_tokens.push_back(static_cast<int32_t>(random() % 50));
      }
      const StepSequence step[] = {{sequence, count, StepMode::kDecode}};
      model_.step_with_drafts(runtime, step_tokens, step, [&](std::span<const float> logits) {
        const size_t vocab = logits.size() / step_tokens.size();
        const auto right = logits.first(static_cast<size_t>(kept) * vocab);
        all.insert(all.end(), right.begin(), right.end());
        return std::vector<int>{kept};
      });
      i += static_cast<size_t>(kept);
      EXPECT_EQ(runtime.length(sequence), static_cast<int64_t>(i));
      longest_ = std::max(longest_, count);
    }
    return all;
  }

  std::unique_ptr<Runtime> runtime(const Config& config) {
    const Geometry geometry = model_.config().geometry();
    return std::make_unique<Runtime>(model_.device(), config, geometry, model_.dtype(),
                                     all_slice_dims(geometry));
  }

  // "cuda": over a fake runtime.
  std::unique_ptr<Device> open(const std::string& name) {
    return name == "cuda" ? open_fake(fake_) : open_test_device(name);
  }

  FakeCuda fake_;
  const std::unique_ptr<Device> device_ = open(std::get<0>(GetParam()));
  Model model_ = Model::load(golden_dir(std::get<1>(GetParam())), *device_, DType::kF32);
  std::vector<int32_t> tokens_ = [] {
    std::vector<int32_t> tokens(kPrompt + kDecoded);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 47);
    return tokens;
  }();
  int longest_ = 0;
};

TEST_P(DraftedTest, WhatIsNotKeptLeavesNoTrace) {
  Config config;
  config.selection.fac_tokens = {{.tokens = 24}};
  config.selection.recent = 5;
  struct Placement {
    RowPlacement rows;
    int hot_rows;
  };
  for (const auto& [rows, hot_rows] :
       {Placement{RowPlacement::kHost, 30}, Placement{RowPlacement::kDevice, 0},
        Placement{RowPlacement::kAuto, 40}, Placement{RowPlacement::kHost, 0}}) {
    if (rows != RowPlacement::kDevice && device_->unified()) continue;
    // Interpreted kernels of a model's own work are slow: one placement.
    if (fake_.live_streams > 0 && hot_rows != 30) continue;
    config.placement.rows = rows;
    config.placement.hot_rows = hot_rows;
    const auto runtime = this->runtime(config);
    const std::vector<float> expected = one_by_one(*runtime);
    const SequenceId sequence = start(*runtime);
    const SequenceId fork = runtime->fork(sequence, kPrompt);
    for (const uint32_t seed : {1u, 2u}) {
      EXPECT_EQ(drafted(*runtime, seed == 1 ? sequence : fork, seed), expected);
    }
  }
  EXPECT_GT(longest_, 8);
}

constexpr auto kNameOf = [](const auto& test) {
  std::string name = std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
};

INSTANTIATE_TEST_SUITE_P(Models, DraftedTest,
                         ::testing::Combine(::testing::Values("cpu"),
                                            ::testing::Values("llama-gqa-bf16", "mistral-window",
                                                              "deepseek-v2", "gemma3", "bloom",
                                                              "qwen3-moe", "gpt-oss", "qwen3-5",
                                                              "qwen3-5-moe", "qwen3-next")),
                         kNameOf);
// The emulated device tells kinds of layers apart, not models.
INSTANTIATE_TEST_SUITE_P(Emulated, DraftedTest,
                         ::testing::Combine(::testing::Values("emulated"),
                                            ::testing::Values("llama-gqa-bf16", "mistral-window",
                                                              "deepseek-v2", "qwen3-5")),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(OnCuda, DraftedTest,
                         ::testing::Combine(::testing::Values("cuda"),
                                            ::testing::Values("llama-gqa-bf16", "qwen3-5")),
                         kNameOf);

class DraftedAnswerTest : public ::testing::Test {
 protected:
  GenerateResult answer(DraftKind drafts, double temperature) {
    const auto runtime = full_runtime(model_);
    GenerateOptions options;
    options.max_tokens = 150;
    options.logprobs = 3;
    options.drafts = drafts;
    options.sampling.temperature = temperature;
    options.sampling.top_p = 0.9;
    options.sampling.presence_penalty = 0.1;
    options.sampling.seed = 5;
    options.stop = {"q"};
    const auto prompt =
        tokenizer_->encode(read_file(source_path("models/texts/facts-1k.json")).substr(0, 700));
    GenerateResult result = generate(model_, *runtime, prompt, options, tokenizer_.get());
    EXPECT_EQ(result.cache_tokens, result.prompt_tokens + result.decoded_tokens);
    return result;
  }

  const std::unique_ptr<Device> device_ = open_test_device("cpu");
  Model model_ = Model::load(bundled_dir(), *device_, std::nullopt);
  const std::unique_ptr<text::Tokenizer> tokenizer_ =
      text::Tokenizer::load_if_present(bundled_dir());
};

TEST_F(DraftedAnswerTest, AnswersDoNotDependOnDrafts) {
  for (const double temperature : {0.0, 0.7, 1.5}) {
    const GenerateResult plain = answer(DraftKind::kNone, temperature);
    const GenerateResult drafted = answer(DraftKind::kLookup, temperature);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.text, plain.text);
    EXPECT_EQ(drafted.end, plain.end);
    EXPECT_EQ(drafted.cache_tokens, plain.cache_tokens);
    ASSERT_EQ(drafted.logprobs.size(), plain.logprobs.size());
    for (size_t i = 0; i < plain.logprobs.size(); ++i) {
      EXPECT_EQ(drafted.logprobs[i].logprob, plain.logprobs[i].logprob);
      EXPECT_EQ(drafted.logprobs[i].top, plain.logprobs[i].top);
    }
    EXPECT_EQ(plain.drafts.made, 0);
    EXPECT_EQ(drafted.decoded_tokens, drafted.decode_steps + drafted.drafts.right);
  }
  EXPECT_GT(answer(DraftKind::kLookup, 0).drafts.made, 0);
}

TEST(DraftedAnswers, StatesOfLinearAttentionDoNotDependOnDrafts) {
  const auto device = open_test_device("cpu");
  Model model = Model::load(golden_dir("qwen3-5"), *device, DType::kF32);
  std::vector<int32_t> prompt(80);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * i % 23);
  const auto answer = [&](DraftKind drafts) {
    const auto runtime = full_runtime(model);
    GenerateOptions options;
    options.max_tokens = 120;
    options.logprobs = 2;
    options.drafts = drafts;
    options.sampling.temperature = 1;
    options.sampling.logit_bias = {{3, 100.0f}, {5, 100.0f}};  // a text that repeats itself
    return generate(model, *runtime, prompt, options, nullptr);
  };
  const GenerateResult plain = answer(DraftKind::kNone), drafted = answer(DraftKind::kLookup);
  EXPECT_EQ(drafted.tokens, plain.tokens);
  EXPECT_GT(drafted.drafts.right, 0);
  EXPECT_GT(drafted.drafts.made, drafted.drafts.right);
  for (size_t i = 0; i < plain.logprobs.size(); ++i) {
    EXPECT_EQ(drafted.logprobs[i].top, plain.logprobs[i].top);
  }
}

TEST(DraftedRefusals, WhatCannotBeKeptIsRefused) {
  const auto device = open_test_device("cpu");
  Model model = Model::load(golden_dir("llama-gqa-bf16"), *device, DType::kF32);
  const auto runtime = full_runtime(model);
  const SequenceId sequence = runtime->create();
  const std::vector<int32_t> tokens(63, 4);
  const auto keep = [&](int count, StepMode mode, std::vector<int> kept) {
    const StepSequence step[] = {{sequence, count, mode}};
    model.step_with_drafts(*runtime, std::span(tokens).first(static_cast<size_t>(count)), step,
                           [&](std::span<const float>) { return kept; });
  };
  const auto refused = [&](int count, StepMode mode, std::vector<int> kept, const char* why) {
    const int64_t before = runtime->length(sequence);
    try {
      keep(count, mode, std::move(kept));
      ADD_FAILURE() << why;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
    EXPECT_EQ(runtime->length(sequence), before);
  };
  refused(5, StepMode::kPrefill, {4}, "4 of 5 tokens stay of sequence");
  keep(60, StepMode::kPrefill, {60});
  EXPECT_EQ(runtime->info(sequence).max_drafted, 3);
  refused(4, StepMode::kDecode, {1}, "decode step of up to 3 tokens");
  refused(3, StepMode::kDecode, {0}, "allowed: 1 to 3");
  refused(3, StepMode::kDecode, {4}, "allowed: 1 to 3");
  refused(3, StepMode::kDecode, {1, 1}, "of 2 sequences; allowed: of 1");
  keep(3, StepMode::kDecode, {2});
  EXPECT_EQ(runtime->length(sequence), 62);
  EXPECT_EQ(runtime->info(sequence).max_drafted, 1);
  keep(2, StepMode::kDecode, {});
  EXPECT_EQ(runtime->length(sequence), 64);
}

// Protected rows have room for so many.
TEST(DraftedRefusals, RowsOverTheLinkAllowSixteenTokens) {
  const auto emulated = open_test_device("emulated");
  Model model = Model::load(golden_dir("llama-gqa-bf16"), *emulated, DType::kF32);
  const auto runtime = host_runtime(model);
  const SequenceId sequence = runtime->create();
  const std::vector<int32_t> tokens(63, 4);
  const auto step = [&](int count, StepMode mode) {
    const StepSequence parts[] = {{sequence, count, mode}};
    model.step(*runtime, std::span(tokens).first(static_cast<size_t>(count)), parts);
  };
  EXPECT_EQ(runtime->info(sequence).max_decoded, 16);
  EXPECT_EQ(runtime->info(sequence).max_drafted, 16);
  EXPECT_THROW(step(17, StepMode::kDecode), UsageError);
  step(48, StepMode::kPrefill);
  EXPECT_EQ(runtime->info(sequence).max_decoded, 16);
  EXPECT_EQ(runtime->info(sequence).max_drafted, 15);
  step(16, StepMode::kDecode);
  EXPECT_EQ(runtime->length(sequence), 64);
}

}  // namespace
}  // namespace fasa
