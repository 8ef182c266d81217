// Logits against Hugging Face transformers' (tests/golden/make_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using namespace llm_test;

double difference_to(const std::string& model_dir, const Golden& golden, DType dtype,
                     const std::string& device_name, size_t chunk) {
  const auto device = open_test_device(device_name);
  Model model = Model::load(model_dir, *device, dtype);
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  EXPECT_EQ(golden.logits.size(), golden.positions.size() * vocab);
  return relative_difference(prefill_logits(model, golden.tokens, chunk), golden, vocab);
}

std::string test_name(std::string folder) {
  std::replace(folder.begin(), folder.end(), '-', '_');
  return folder;
}

constexpr const char* kDense[] = {"llama-gqa-bf16",
                                  "llama-biases",
                                  "llama-mqa-f16",
                                  "llama-mha-tied",
                                  "llama-odd-head",
                                  "llama-llama3",
                                  "llama-linear-old-config",
                                  "llama-yarn",
                                  "mistral-window",
                                  "qwen2-sharded",
                                  "qwen2-window",
                                  "qwen3",
                                  "ernie",
                                  "ernie-mha-biases",
                                  "gpt-neox",
                                  "gpt-neox-sequential",
                                  "stablelm",
                                  "stablelm-parallel",
                                  "phi",
                                  "phi-norms",
                                  "bloom",
                                  "bloom-heads",
                                  "mpt",
                                  "deepseek-v2",
                                  "deepseek-v2-yarn",
                                  "granite",
                                  "olmo2",
                                  "olmo2-biases",
                                  "smollm3",
                                  "smollm3-window",
                                  "phi3",
                                  "phi3-short",
                                  "gemma3",
                                  "gemma3-old-config"};
constexpr const char* kWithExperts[] = {
    "qwen3-moe",       "qwen3-moe-mixed",       "mixtral", "gpt-oss", "gpt-oss-old-config",
    "deepseek-v2-moe", "deepseek-v2-moe-groups"};

class GoldenTest : public testing::TestWithParam<const char*> {};
// In bf16 a router may choose another expert than in f32, whose logits then are others.
class Bf16GoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, F32LogitsEqualTransformers) {
  const std::string dir = golden_dir(GetParam());
  const Golden golden = Golden::load(dir);
  for (const size_t chunk : {size_t{512}, size_t{7}}) {
    EXPECT_LE(difference_to(dir, golden, DType::kF32, "cpu", chunk), kF32Bound) << chunk;
  }
  EXPECT_LE(difference_to(dir, golden, DType::kF32, "emulated", 33), kF32Bound);
}

TEST_P(Bf16GoldenTest, LogitsEqualTransformers) {
  const std::string dir = golden_dir(GetParam());
  EXPECT_LE(difference_to(dir, Golden::load(dir), DType::kBF16, "cpu", 64), kBf16Bound);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest, testing::ValuesIn(kDense),
                         [](const auto& test) { return test_name(test.param); });
INSTANTIATE_TEST_SUITE_P(Families, Bf16GoldenTest, testing::ValuesIn(kDense),
                         [](const auto& test) { return test_name(test.param); });
INSTANTIATE_TEST_SUITE_P(Experts, GoldenTest, testing::ValuesIn(kWithExperts),
                         [](const auto& test) { return test_name(test.param); });

class BundledModelTest : public testing::TestWithParam<const char*> {
 protected:
  std::string model_ = source_path(std::string("models/") + GetParam());
  std::string golden_ = golden_dir(GetParam());
};

TEST_P(BundledModelTest, F32LogitsEqualTransformers) {
  const Golden golden = Golden::load(golden_);
  EXPECT_LE(difference_to(model_, golden, DType::kF32, "cpu", 512), kF32Bound);
}

TEST_P(BundledModelTest, Bf16LogitsEqualTransformersInF32AndInBf16) {
  const Golden in_f32 = Golden::load(golden_);
  const Golden in_bf16 = Golden::load(golden_, "logits-bf16");
  EXPECT_LE(difference_to(model_, in_f32, DType::kBF16, "cpu", 512), kBf16Bound);
  EXPECT_LE(difference_to(model_, in_bf16, DType::kBF16, "cpu", 512), kBf16Bound);
}

INSTANTIATE_TEST_SUITE_P(Bundled, BundledModelTest,
                         testing::Values("needle-3m", "pairs-400k", "partial-400k", "alibi-400k"),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace fasa
