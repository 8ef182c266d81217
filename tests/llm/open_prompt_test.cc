// Prompts read layer by layer give the logits, tokens and rows of prompts read by steps.
#include "runtime/llm/open_prompt.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/llm/generator.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using namespace llm_test;

std::vector<int32_t> some_prompt(int tokens, int vocabulary) {
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int32_t>((i * i + 3 * i) % static_cast<size_t>(vocabulary));
  }
  return prompt;
}

std::vector<float> decoded(Model& model, Runtime& runtime, SequenceId sequence) {
  std::vector<float> all;
  const int32_t token = 3;
  const StepSequence step[] = {{sequence, 1, StepMode::kDecode}};
  for (int i = 0; i < 3; ++i) {
    const auto logits = model.step(runtime, {&token, 1}, step);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

// Every family that can be read so.
TEST(OpenPrompt, TheBitsOfStepsInEveryFamily) {
  constexpr int kTokens = 150;
  int read = 0;
  std::vector<const char*> names(std::begin(kDenseModels), std::end(kDenseModels));
  names.insert(names.end(), std::begin(kModelsWithExperts), std::end(kModelsWithExperts));
  for (const char* name : names) {
    SCOPED_TRACE(name);
    for (const char* kind : {"cpu", "emulated"}) {
      const auto device = open_test_device(kind);
      Model model = Model::load(golden_dir(name), *device, std::nullopt);
      const auto runtime = device->unified() ? full_runtime(model) : host_runtime(model);
      const auto prompt = some_prompt(kTokens, 60);
      const SequenceId steps = runtime->create();
      const auto expected = logits_by_steps(model, *runtime, steps, prompt);
      const auto after = decoded(model, *runtime, steps);
      for (const auto& [piece, chunk] : {std::pair{40, 64}, {7, 128}}) {
        const SequenceId sequence = runtime->create();
        auto open = OpenPrompt::open(model, *runtime, sequence, prompt,
                                     {.piece = piece, .chunk = chunk, .prompt = 2 * piece});
        if (!open) continue;
        ++read;
        double before = 0;
        while (!open->work()) {
          EXPECT_GE(open->done(), before);
          before = open->done();
        }
        EXPECT_EQ(open->done(), kTokens);
        EXPECT_EQ(std::vector<float>(open->logits().begin(), open->logits().end()), expected);
        EXPECT_EQ(decoded(model, *runtime, sequence), after);
      }
    }
  }
  EXPECT_GE(read, 60);
}

class LongPrompt : public ::testing::Test {
 protected:
  LongPrompt() {
    device_ = open_test_device("emulated");
    model_.emplace(Model::load(bundled_dir(), *device_, std::nullopt));
    Config config;
    config.selection.fac_tokens = {{.tokens = 100, .share = 0}};
    config.placement.hot_rows = 200;
    runtime_.emplace(*device_, config, model_->config().geometry(), model_->dtype(),
                     all_slice_dims(model_->config().geometry()));
  }
  std::unique_ptr<Device> device_;
  std::optional<Model> model_;
  std::optional<Runtime> runtime_;
};

TEST_F(LongPrompt, ChunksBehindEachOtherAndATail) {
  const auto prompt = some_prompt(1500, 97);
  const SequenceId steps = runtime_->create();
  logits_by_steps(*model_, *runtime_, steps, std::span(prompt).first(100));
  const auto expected = logits_by_steps(*model_, *runtime_, steps, std::span(prompt).subspan(100));
  const SequenceId sequence = runtime_->create();
  logits_by_steps(*model_, *runtime_, sequence, std::span(prompt).first(100));
  auto open = OpenPrompt::open(*model_, *runtime_, sequence, std::span(prompt).subspan(100),
                               {.piece = 200, .chunk = 500});
  ASSERT_TRUE(open);
  EXPECT_EQ(open->chunk(), 448);  // whole pages
  while (!open->work()) {
  }
  EXPECT_EQ(std::vector<float>(open->logits().begin(), open->logits().end()), expected);
  EXPECT_EQ(decoded(*model_, *runtime_, sequence), decoded(*model_, *runtime_, steps));
}

// A prompt that ends early keeps its whole chunks.
TEST_F(LongPrompt, Cancelled) {
  const auto prompt = some_prompt(1500, 97);
  const SequenceId sequence = runtime_->create();
  const int layers = model_->config().layers;
  {
    auto open =
        OpenPrompt::open(*model_, *runtime_, sequence, prompt, {.piece = 100, .chunk = 640});
    ASSERT_TRUE(open);
    // The odd chunk is first: 1500 - 2 x 640, in whole pages.
    for (int i = 0; i < 3 * layers + 2; ++i) EXPECT_FALSE(open->work());
    EXPECT_GT(open->done(), 256);
  }
  EXPECT_EQ(runtime_->length(sequence), 256);
  EXPECT_EQ(runtime_->memory().device_extra, 0u);
  const SequenceId steps = runtime_->create();
  logits_by_steps(*model_, *runtime_, steps, std::span(prompt).first(256));
  EXPECT_EQ(decoded(*model_, *runtime_, sequence), decoded(*model_, *runtime_, steps));
}

TEST_F(LongPrompt, ShortOnesAndThoseWithoutMemoryAreReadBySteps) {
  const SequenceId sequence = runtime_->create();
  const auto prompt = some_prompt(1500, 97);
  EXPECT_FALSE(
      OpenPrompt::open(*model_, *runtime_, sequence, prompt, {.piece = 800, .prompt = 1600}));
  EXPECT_FALSE(
      OpenPrompt::open(*model_, *runtime_, sequence, prompt, {.piece = 100, .chunk = 150}));
  const auto windows = full_runtime(*model_, 50);
  EXPECT_FALSE(OpenPrompt::open(*model_, *windows, windows->create(), prompt, {.piece = 100}));
}

// Generation is the same either way, and what a chunk took is free again.
TEST_F(LongPrompt, Generate) {
  const auto prompt = some_prompt(1500, 97);
  GenerateOptions options;
  options.max_tokens = 6;
  options.prefill_chunk = 1000;  // no two pieces
  const GenerateResult steps = generate(*model_, *runtime_, prompt, options, nullptr);
  EXPECT_EQ(steps.prefill_chunk, 1000);
  options.prefill_chunk = 100;
  int64_t last = 0;
  options.on_prefill = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    EXPECT_EQ(total, 1500);
  };
  const GenerateResult layers = generate(*model_, *runtime_, prompt, options, nullptr);
  EXPECT_EQ(layers.prefill_chunk, 1500);
  EXPECT_EQ(last, 1500);
  EXPECT_EQ(layers.tokens, steps.tokens);
  EXPECT_EQ(layers.cache_tokens, steps.cache_tokens);
}

}  // namespace
}  // namespace fasa
