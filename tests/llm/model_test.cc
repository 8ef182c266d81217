// Invalid models, and steps whose bits must not depend on how they are run.
#include "runtime/llm/compute/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/llm/llm_fixture.h"
#include "tests/llm/temp_model.h"

namespace fasa {
namespace {

using namespace llm_test;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The error of loading llama-gqa-bf16 with a modified config.
std::string error_with(const std::string& golden, const nlohmann::json& changes) {
  const TempDir dir;
  dir.copy_from(golden_dir(golden));
  auto config = nlohmann::json::parse(read_file(dir.path() + "/config.json"));
  if (!changes.is_null()) config.update(changes);
  dir.write("config.json", config.dump());
  const auto device = open_test_device("cpu");
  try {
    Model::load(dir.path(), *device, DType::kF32);
  } catch (const InputError& error) {
    EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, 0u);
    return error.what();
  }
  return "no error";
}

TEST(ModelLoadTest, ConfigsThatContradictTheWeights) {
  const std::string name = "llama-gqa-bf16";
  EXPECT_EQ(error_with(name, {}), "no error");
  EXPECT_THAT(error_with(name, {{"num_hidden_layers", 3}}),
              HasSubstr("model.layers.2.input_layernorm.weight is missing"));
  EXPECT_THAT(error_with(name, {{"num_hidden_layers", 1}}),
              AllOf(HasSubstr("model.layers.1."), HasSubstr("does not belong to the model")));
  EXPECT_THAT(error_with(name, {{"vocab_size", 65}}), HasSubstr("model.embed_tokens.weight"));
  EXPECT_THAT(error_with(name, {{"intermediate_size", 41}}),
              AllOf(HasSubstr("mlp.gate_proj.weight"), HasSubstr("[41, 32]")));
  EXPECT_THAT(error_with(name, {{"num_key_value_heads", 1}}), HasSubstr("k_proj.weight"));
  EXPECT_THAT(error_with(name, {{"attention_bias", true}}),
              HasSubstr("self_attn.q_proj.bias is missing"));
  EXPECT_THAT(error_with(name, {{"model_type", "qwen3"}}), HasSubstr("q_norm.weight is missing"));
  EXPECT_THAT(error_with("llama-mha-tied", {{"tie_word_embeddings", false}}),
              HasSubstr("lm_head.weight is missing"));
  EXPECT_THAT(error_with("qwen2-sharded", {{"model_type", "mistral"}}),
              AllOf(HasSubstr("bias"), HasSubstr("does not belong to the model")));
}

TEST(ModelLoadTest, TooLittleDeviceMemorySaysWhatIsNeeded) {
  DeviceOptions options;
  options.name = "emulated";
  options.device_memory = 20'000;
  const auto device = open_device(options);
  try {
    Model::load(golden_dir("llama-gqa-bf16"), *device, DType::kBF16);
    FAIL();
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.limit(), "device_memory");
    EXPECT_GT(error.asked_bytes(), 20'000u);
    EXPECT_THAT(error.what(), HasSubstr("weights"));
  }
  EXPECT_THROW(Model::load(golden_dir("llama-gqa-bf16"), *device, DType::kF16), UsageError);
}

TEST(ModelLoadTest, AutoIsF32ForSmallModels) {
  const auto device = open_test_device("cpu");
  const Model model = Model::load(golden_dir("qwen3"), *device, std::nullopt);
  EXPECT_EQ(model.dtype(), DType::kF32);
  ModelConfig large = model.config();
  large.layers = 4000;
  large.hidden = 4096;
  EXPECT_EQ(large.auto_dtype(), DType::kBF16);
}

TEST(ModelLoadTest, FingerprintDoesntDependOnTheDtypeOfTheRun) {
  const auto device = open_test_device("cpu");
  const ModelFingerprint a =
      Model::load(golden_dir("llama-llama3"), *device, DType::kF32).fingerprint();
  const ModelFingerprint b =
      Model::load(golden_dir("llama-llama3"), *device, DType::kBF16).fingerprint();
  EXPECT_EQ(a, b);
  ASSERT_EQ(a.key_rows.size(), 2u);
  EXPECT_EQ(a.key_rows[0].size(), 32u * 4);
  EXPECT_NE(a.key_rows[0], a.key_rows[1]);
  EXPECT_THAT(a.rope_scaling, HasSubstr("llama3 factor=8"));
}

TEST(ModelStepTest, TokensOutsideOfTheVocabularyAreNamed) {
  const auto device = open_test_device("cpu");
  Model model = Model::load(golden_dir("qwen3"), *device, DType::kF32);
  const auto runtime = full_runtime(model);
  const SequenceId sequence = runtime->create();
  const StepSequence step[] = {{sequence, 2, StepMode::kPrefill}};
  for (const int32_t bad : {-1, 64, INT32_MAX}) {
    const int32_t tokens[] = {3, bad};
    EXPECT_THROW(model.step(*runtime, tokens, step), UsageError);
    EXPECT_EQ(runtime->length(sequence), 0);
  }
  const int32_t tokens[] = {3, 63};
  EXPECT_THROW(model.step(*runtime, std::span(tokens).first(1), step), UsageError);
  EXPECT_EQ(model.step(*runtime, tokens, step).size(), 64u);
  EXPECT_EQ(runtime->length(sequence), 2);
}

class ModelBitsTest : public ::testing::TestWithParam<std::tuple<const char*, DType>> {};

TEST_P(ModelBitsTest, DontDependOnChunksThreadsOrDevice) {
  const auto [name, dtype] = GetParam();
  const Golden golden = Golden::load(golden_dir(name));
  std::vector<float> first;
  struct Run {
    const char* device;
    int threads;
    size_t chunk;
  };
  for (const Run& run : {Run{"cpu", 2, 512}, Run{"cpu", 1, 512}, Run{"cpu", 2, 1},
                         Run{"cpu", 2, 17}, Run{"emulated", 2, 40}}) {
    const auto device = open_test_device(run.device, run.threads);
    Model model = Model::load(golden_dir(name), *device, dtype);
    const std::vector<float> logits = prefill_logits(model, golden.tokens, run.chunk);
    if (first.empty()) first = logits;
    ASSERT_EQ(std::memcmp(logits.data(), first.data(), first.size() * sizeof(float)), 0)
        << run.device << " " << run.threads << " " << run.chunk;
  }
}

TEST_P(ModelBitsTest, SequencesSteppedTogetherGetWhatEachGetsAlone) {
  const auto [name, dtype] = GetParam();
  const auto device = open_test_device("cpu");
  Model model = Model::load(golden_dir(name), *device, dtype);
  const auto runtime = full_runtime(model);
  constexpr int kSequences = 16;
  std::vector<StepSequence> prefill, decode;
  std::vector<int32_t> prompts, next;
  for (int i = 0; i < kSequences; ++i) {
    const SequenceId id = runtime->create();
    prefill.push_back({id, i + 1, StepMode::kPrefill});
    decode.push_back({id, 1, StepMode::kDecode});
    for (int j = 0; j <= i; ++j) prompts.push_back((i * 7 + j * 5) % 64);
    next.push_back((i * 11) % 64);
  }
  model.step(*runtime, prompts, prefill);
  const auto together = model.step(*runtime, next, decode);
  const std::vector<float> all(together.begin(), together.end());
  size_t prompt_begin = 0;
  for (size_t i = 0; i < kSequences; ++i) {
    const SequenceId id = runtime->create();
    const StepSequence one[] = {{id, static_cast<int>(i) + 1, StepMode::kPrefill}};
    model.step(*runtime, std::span(prompts).subspan(prompt_begin, i + 1), one);
    prompt_begin += i + 1;
    const StepSequence one_decode[] = {{id, 1, StepMode::kDecode}};
    const auto alone = model.step(*runtime, std::span(next).subspan(i, 1), one_decode);
    EXPECT_EQ(std::memcmp(alone.data(), all.data() + i * 64, 64 * sizeof(float)), 0) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelBitsTest,
                         ::testing::Combine(::testing::Values("llama-biases", "mistral-window",
                                                              "qwen3", "qwen3-moe", "gpt-oss",
                                                              "deepseek-v2-moe"),
                                            ::testing::Values(DType::kF32, DType::kBF16)));

class CountingObserver : public LayerObserver {
 public:
  void on_layer(int layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                int64_t start_position) override {
    layers.push_back(layer);
    start = start_position;
    shapes = {q.tokens, q.heads, k.heads, v.heads, k.dim};
  }
  std::vector<int> layers;
  int64_t start = -1;
  std::vector<int64_t> shapes;
};

TEST(ModelStepTest, ObserversSeeEachLayer) {
  for (const char* name : {"cpu", "emulated"}) {
    const auto device = open_test_device(name);
    Model model = Model::load(golden_dir("llama-mqa-f16"), *device, DType::kF32);
    const auto runtime = full_runtime(model);
    const StepSequence step[] = {{runtime->create(), 3, StepMode::kPrefill}};
    const int32_t tokens[] = {1, 2, 3};
    CountingObserver observer;
    EXPECT_TRUE(
        model.step(*runtime, tokens, step, {.no_logits = true, .observer = &observer}).empty());
    EXPECT_EQ(observer.start, 0);
    observer.layers.clear();
    model.step(*runtime, tokens, step, {.observer = &observer});
    EXPECT_EQ(observer.layers, (std::vector<int>{0, 1}));
    EXPECT_EQ(observer.start, 3);
    EXPECT_EQ(observer.shapes, (std::vector<int64_t>{3, 4, 1, 1, 8}));
  }
}

}  // namespace
}  // namespace fasa
