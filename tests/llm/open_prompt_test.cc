// Prompts read layer by layer give the logits, tokens and rows of prompts read by steps.
#include "runtime/llm/generation/open_prompt.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/llm/generation/generator.h"
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
  for (const auto& more : {std::span<const char* const>(kModelsWithExperts),
                           std::span<const char* const>(kLinearModels),
                           std::span<const char* const>(kLinearModelsWithExperts)}) {
    names.insert(names.end(), more.begin(), more.end());
  }
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
  EXPECT_GE(read, 124);
}

std::vector<int64_t> states_of(const Runtime& runtime, SequenceId sequence) {
  std::vector<int64_t> tokens;
  for (const StatePoint& point : runtime.exchange().states(sequence))
    tokens.push_back(point.tokens);
  return tokens;
}

// Layers with linear attention: every snapshot is taken whatever the chunks, and a dropped chunk
// leaves the state.
TEST(OpenPrompt, StatesOfLinearLayers) {
  const auto prompt = some_prompt(300, 60);
  for (const char* kind : {"cpu", "emulated"}) {
    const auto device = open_test_device(kind);
    Model model = Model::load(golden_dir("qwen3-5"), *device, std::nullopt);
    Config config;
    config.memory.snapshots = {.interval = 64, .turns = 2};
    Runtime runtime(*device, config, model.config().geometry(), model.dtype(),
                    all_slice_dims(model.config().geometry()));
    const SequenceId steps = runtime.create();
    const auto expected = logits_by_steps(model, runtime, steps, prompt);
    const auto states = states_of(runtime, steps);
    EXPECT_EQ(states, (std::vector<int64_t>{64, 128, 192, 256, 300}));
    const auto after = decoded(model, runtime, steps);
    for (const auto& [piece, chunk] : {std::pair{100, 300}, {150, 300}, {40, 128}}) {
      const SequenceId sequence = runtime.create();
      for (int pieces : {1, 9, 1000}) {
        const auto length = static_cast<size_t>(runtime.length(sequence));
        auto open = OpenPrompt::open(model, runtime, sequence, std::span(prompt).subspan(length),
                                     {.piece = piece, .chunk = chunk});
        ASSERT_TRUE(open);
        bool whole = false;
        while (!whole && pieces-- > 0) whole = open->work();
        if (whole) {
          EXPECT_EQ(std::vector<float>(open->logits().begin(), open->logits().end()), expected);
        }
        open.reset();
        const int64_t now = runtime.length(sequence);
        EXPECT_EQ(runtime.resume_point(sequence, now), now);
      }
      EXPECT_EQ(states_of(runtime, sequence), states) << kind << " " << chunk;
      EXPECT_EQ(decoded(model, runtime, sequence), after);
    }
    EXPECT_EQ(states_of(runtime, runtime.fork(steps, 192)).back(), 192);
  }
}

// Rows of layers with a window: a chunk's leave the device behind it.
TEST(OpenPrompt, RowsOfWindows) {
  constexpr int kTokens = 2600, kStep = 520;
  const auto prompt = some_prompt(kTokens, 60);
  for (const char* kind : {"cpu", "emulated"}) {
    const auto device = open_test_device(kind);
    Model model = Model::load(golden_dir("gemma2"), *device, std::nullopt);
    const auto read = [&](const auto& reader) {
      const auto runtime = device->unified() ? full_runtime(model) : host_runtime(model);
      const SequenceId sequence = runtime->create();
      runtime->set_rollback_tokens(sequence, 0);
      const std::vector<float> logits = reader(*runtime, sequence);
      const std::vector<float> after = decoded(model, *runtime, sequence);
      const KvMemory memory = runtime->memory();
      return std::tuple(logits, after, memory.device_rows + memory.host_rows);
    };
    const auto [logits, after, bytes] = read([&](Runtime& runtime, SequenceId sequence) {
      std::vector<float> last;
      for (int done = 0; done < kTokens; done += kStep) {
        last = logits_by_steps(model, runtime, sequence, std::span(prompt).subspan(done, kStep));
      }
      return last;
    });
    const auto [own_logits, own_after, own_bytes] =
        read([&](Runtime& runtime, SequenceId sequence) -> std::vector<float> {
          auto open = OpenPrompt::open(model, runtime, sequence, prompt,
                                       {.piece = 150, .chunk = 1280, .prompt = 300});
          if (!open) return {};
          while (!open->work()) {
          }
          return {open->logits().begin(), open->logits().end()};
        });
    EXPECT_EQ(own_logits, logits) << kind;
    EXPECT_EQ(own_after, after) << kind;
    EXPECT_LE(own_bytes, bytes) << kind;
  }
}

// Experts on the host cross the link once a layer and chunk, and have the same bits.
TEST(OpenPrompt, ExpertsAreFetchedOnceAChunk) {
  constexpr int kTokens = 320, kChunk = 128;  // three chunks
  const auto prompt = some_prompt(kTokens, 60);
  for (const char* name : {"qwen3-moe", "deepseek-v2-moe", "qwen3-next"}) {
    SCOPED_TRACE(name);
    const auto read = [&](ExpertLocation location) {
      const auto device = open_test_device("emulated");
      WeightOptions weights;
      weights.experts = location;
      Model model = Model::load(golden_dir(name), *device, DType::kF32, weights);
      EXPECT_EQ(model.layer_expert_bytes() > 0, location == ExpertLocation::kHost);
      const auto runtime = host_runtime(model);
      const SequenceId sequence = runtime->create();
      auto open =
          OpenPrompt::open(model, *runtime, sequence, prompt, {.piece = 32, .chunk = kChunk});
      const uint64_t before = device->transfers().h2d_bytes;
      while (!open->work()) {
      }
      const std::vector<float> logits(open->logits().begin(), open->logits().end());
      return std::tuple(device->transfers().h2d_bytes - before, logits,
                        static_cast<double>(model.weight_bytes().experts));
    };
    const auto [others, expected, same] = read(ExpertLocation::kDevice);
    const auto [bytes, logits, experts] = read(ExpertLocation::kHost);
    EXPECT_EQ(logits, expected);
    EXPECT_NEAR(static_cast<double>(bytes - others) / experts, 3, 0.1);
  }
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

// Copies of other sequences' rows give their memory up.
TEST(OpenPrompt, TakesTheMemoryOfCopies) {
  DeviceOptions options;
  options.name = "emulated";
  options.device_memory = uint64_t{28} << 20;
  const auto device = open_device(options);
  Model model = Model::load(bundled_dir(), *device, std::nullopt);
  model.reserve(264);
  Config config;
  config.placement.rows = RowPlacement::kAuto;
  config.placement.hot_rows = 64;
  config.selection.fac_tokens = {{.tokens = 48, .share = 0}};
  const Geometry geometry = model.config().geometry();
  Runtime runtime(*device, config, geometry, model.dtype(), all_slice_dims(geometry));
  const auto prompt = some_prompt(3000, 97);
  const SequenceId steps = runtime.create();
  std::vector<float> expected;
  for (size_t at = 0; at < prompt.size(); at += 250) {
    expected = logits_by_steps(model, runtime, steps, std::span(prompt).subspan(at, 250));
  }
  const MemoryUse use = device->memory(MemorySpace::kDevice);
  const uint64_t copies = runtime.memory().device_rows;
  EXPECT_LT(use.limit_bytes - use.used_bytes, uint64_t{2} << 20);
  const SequenceId sequence = runtime.create();
  auto open = OpenPrompt::open(model, runtime, sequence, prompt, {.piece = 250, .chunk = 1000});
  ASSERT_TRUE(open);
  while (!open->work()) {
  }
  EXPECT_EQ(std::vector<float>(open->logits().begin(), open->logits().end()), expected);
  EXPECT_GT(copies, 0u);
}

// The last token's logits are not computed for callers that do not want them: the device sends rows
// to the host, and nothing else.
TEST_F(LongPrompt, WithoutLogits) {
  const auto prompt = some_prompt(700, 97);
  uint64_t sent[2];
  for (const bool logits : {true, false}) {
    const SequenceId sequence = runtime_->create();
    auto open = OpenPrompt::open(*model_, *runtime_, sequence, prompt,
                                 {.piece = 100, .chunk = 700, .logits = logits});
    ASSERT_TRUE(open);
    const uint64_t before = device_->transfers().d2h_bytes;
    while (!open->work()) {
    }
    sent[logits] = device_->transfers().d2h_bytes - before;
    EXPECT_EQ(open->logits().empty(), !logits);
    const auto after = decoded(*model_, *runtime_, sequence);
    const SequenceId steps = runtime_->create();
    logits_by_steps(*model_, *runtime_, steps, prompt);
    EXPECT_EQ(after, decoded(*model_, *runtime_, steps));
  }
  EXPECT_EQ(sent[1] - sent[0], static_cast<uint64_t>(model_->config().vocab_size) * sizeof(float));
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
