// Generation end to end on the bundled model, and its errors.
#include "runtime/llm/generation/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using namespace llm_test;
using ::testing::HasSubstr;

TEST(GeneratorTest, FullAttentionRecallsThePlantedFacts) {
  const auto facts = nlohmann::json::parse(read_file(source_path("models/texts/facts-1k.json")));
  const auto device = open_test_device("cpu");
  Model model = Model::load(bundled_dir(), *device, std::nullopt);
  const auto tokenizer = text::Tokenizer::load_if_present(bundled_dir());
  const auto runtime = full_runtime(model);
  int right = 0;
  for (const auto& question : facts["questions"]) {
    const auto prompt = tokenizer->encode(facts["text"].get<std::string>() +
                                          question["prompt_suffix"].get<std::string>());
    std::string streamed;
    int64_t progress = 0;
    GenerateOptions options;
    options.max_tokens = 5;
    options.prefill_chunk = 200;
    options.on_token = [&](int32_t, std::string_view bytes) { streamed += bytes; };
    options.on_prefill = [&](int64_t done, int64_t) { progress = done; };
    const GenerateResult result = generate(model, *runtime, prompt, options, tokenizer.get());
    EXPECT_EQ(tokenizer->decode(result.tokens), streamed);
    EXPECT_EQ(progress, result.prompt_tokens);
    EXPECT_EQ(result.decode_steps, 4);
    EXPECT_EQ(result.cache_tokens, result.prompt_tokens + 4);
    EXPECT_GT(result.memory.device_total(), 0u);
    right += streamed == question["answer"].get<std::string>();
  }
  EXPECT_EQ(right, 4);
}

TEST(GeneratorTest, WindowsInAllLayersBoundMemory) {
  const auto device = open_test_device("emulated");
  Model model = Model::load(bundled_dir(), *device, std::nullopt);
  const auto runtime = full_runtime(model, 50);
  std::vector<int32_t> prompt(2000);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * i % 97);
  GenerateOptions options;
  options.max_tokens = 80;
  options.prefill_chunk = 2000;
  const GenerateResult whole = generate(model, *runtime, prompt, options, nullptr);
  options.prefill_chunk = 100;
  const GenerateResult in_chunks = generate(model, *runtime, prompt, options, nullptr);
  EXPECT_EQ(in_chunks.tokens, whole.tokens);
  EXPECT_FALSE(in_chunks.error.has_value());
  EXPECT_EQ(in_chunks.memory.device_rows, runtime->estimate_memory(2080, 100, 0).device_rows);
  EXPECT_LT(in_chunks.memory.device_rows * 2, runtime->estimate_memory(2080, 100).device_rows);
}

class SmallGeneratorTest : public ::testing::Test {
 protected:
  Model load(const char* name) { return Model::load(golden_dir(name), *device_, DType::kF32); }
  std::unique_ptr<Device> device_ = open_test_device("emulated");
  const std::vector<int32_t> prompt_ = {5, 9, 33, 2, 60, 11};
};

TEST_F(SmallGeneratorTest, ChunksDontChangeTheText) {
  Model model = load("llama-gqa-bf16");
  const auto runtime = full_runtime(model);
  GenerateOptions options;
  options.max_tokens = 20;
  const GenerateResult whole = generate(model, *runtime, prompt_, options, nullptr);
  EXPECT_EQ(whole.tokens.size(), 20u);
  EXPECT_FALSE(whole.error.has_value());
  EXPECT_GT(whole.prefill_seconds, 0);
  EXPECT_GT(whole.decode_seconds, 0);
  EXPECT_GT(whole.decode_wall_seconds, 0);
  for (const int chunk : {1, 4, 6}) {
    options.prefill_chunk = chunk;
    EXPECT_EQ(generate(model, *runtime, prompt_, options, nullptr).tokens, whole.tokens);
  }
}

// As long as memory allows; the memory of long chunks is free again while tokens are decoded.
TEST(GeneratorTest, AutomaticChunks) {
  std::vector<int32_t> prompt(2000);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * i % 97);
  GenerateOptions options;
  options.max_tokens = 3;
  std::optional<std::vector<int32_t>> tokens;
  uint64_t needed = 0;
  for (const bool room : {true, false}) {
    auto device = open_test_device("emulated");
    if (!room) {
      DeviceOptions tight;
      tight.name = "emulated";
      tight.device_memory = needed;
      device = open_device(tight);
    }
    Model model = Model::load(bundled_dir(), *device, std::nullopt);
    const auto runtime = full_runtime(model);
    const uint64_t loaded = device->memory(MemorySpace::kDevice).used_bytes;
    needed = loaded + runtime->estimate_memory(2003, 512).device_needed() +
             model.activation_bytes(512) + (uint64_t{1} << 20);
    options.prefill_chunk = kAutomaticChunk;
    const GenerateResult result = generate(model, *runtime, prompt, options, nullptr);
    EXPECT_EQ(result.prefill_chunk, room ? 2048 : kMinPrefillChunk);
    EXPECT_LE(device->memory(MemorySpace::kDevice).used_bytes,
              loaded + model.activation_bytes(513) + (uint64_t{1} << 20));
    EXPECT_EQ(result.tokens, tokens.value_or(result.tokens));
    tokens = result.tokens;
  }
  const auto device = open_test_device("cpu");
  Model model = Model::load(bundled_dir(), *device, std::nullopt);
  EXPECT_EQ(generate(model, *full_runtime(model), prompt, options, nullptr).prefill_chunk,
            2000);  // layer by layer, in pieces of 512
}

TEST_F(SmallGeneratorTest, StopsOnEndOfSequence) {
  Model model = load("llama-mha-tied");  // its end tokens are 3 and 5
  const auto runtime = full_runtime(model);
  GenerateOptions options;
  options.max_tokens = 240;
  options.sampling = {.temperature = 3, .seed = 2};
  const GenerateResult result = generate(model, *runtime, prompt_, options, nullptr);
  EXPECT_TRUE(result.stopped_on_eos);
  EXPECT_LT(result.tokens.size(), 240u);
  EXPECT_THAT(result.tokens, ::testing::Each(::testing::AllOf(::testing::Ne(3), ::testing::Ne(5))));
}

TEST_F(SmallGeneratorTest, RefusesBeforeTheFirstToken) {
  Model model = load("llama-gqa-bf16");  // 256 positions
  const auto runtime = full_runtime(model);
  const auto error = [&](const std::vector<int32_t>& prompt, const GenerateOptions& options) {
    try {
      generate(model, *runtime, prompt, options, nullptr);
    } catch (const UsageError& caught) {
      return std::string(caught.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error({}, {}), HasSubstr("prompt is empty"));
  EXPECT_THAT(error({1, 64}, {}), HasSubstr("prompt token 1 has id 64"));
  EXPECT_THAT(error({1, -2}, {}), HasSubstr("id -2"));
  EXPECT_THAT(error({1}, {.max_tokens = 0}), HasSubstr("max_tokens = 0"));
  EXPECT_THAT(error({1}, {.prefill_chunk = 0}), HasSubstr("prefill_chunk = 0"));
  EXPECT_THAT(error({1}, {.sampling = {.top_p = 2}}), HasSubstr("top_p = 2"));
  EXPECT_THAT(error(std::vector<int32_t>(250, 1), {.max_tokens = 7}), HasSubstr("--allow-long"));
  EXPECT_EQ(error(std::vector<int32_t>(250, 1), {.max_tokens = 6}), "no error");
  EXPECT_EQ(error(std::vector<int32_t>(250, 1), {.max_tokens = 7, .allow_long = true}), "no error");
}

TEST_F(SmallGeneratorTest, ABudgetTooSmallIsFoundBeforeTheFirstToken) {
  DeviceOptions small;
  small.name = "emulated";
  {
    Model model = load("llama-gqa-bf16");
    small.device_memory = device_->memory(MemorySpace::kDevice).used_bytes + 200'000;
  }
  device_ = open_device(small);
  Model model = load("llama-gqa-bf16");
  const auto runtime = full_runtime(model);
  const uint64_t before = runtime->memory().device_total();
  GenerateOptions options;
  options.max_tokens = 4'000'000;
  options.allow_long = true;
  int tokens = 0;
  options.on_token = [&](int32_t, std::string_view) { ++tokens; };
  EXPECT_THROW(generate(model, *runtime, prompt_, options, nullptr), BudgetError);
  EXPECT_EQ(tokens, 0);
  EXPECT_LE(runtime->memory().device_rows, before);
}

TEST_F(SmallGeneratorTest, AnErrorInMidGenerationKeepsWhatWasGenerated) {
  Model model = load("llama-gqa-bf16");
  const auto runtime = full_runtime(model);
  GenerateOptions options;
  options.max_tokens = 20;
  int tokens = 0;
  options.on_token = [&](int32_t, std::string_view) {
    if (++tokens == 4) throw BudgetError("host_memory", 2, 1, 1, "a page of rows");
  };
  const GenerateResult result = generate(model, *runtime, prompt_, options, nullptr);
  EXPECT_EQ(result.tokens.size(), 4u);
  EXPECT_EQ(result.error_kind, ErrorKind::kBudget);
  EXPECT_THAT(result.error.value_or(""), HasSubstr("host_memory"));
  options.on_token = nullptr;
  EXPECT_EQ(generate(model, *runtime, prompt_, options, nullptr).tokens.size(), 20u);
}

}  // namespace
}  // namespace fasa
