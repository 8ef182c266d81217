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

class GoldenTest : public ::testing::TestWithParam<const char*> {};
// In bf16 a router may choose another expert than in f32, which changes the logits.
class Bf16GoldenTest : public ::testing::TestWithParam<const char*> {};
class Bf16LinearGoldenTest : public Bf16GoldenTest {};

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

TEST_P(Bf16LinearGoldenTest, LogitsAreAsNearAsTransformersOwn) {
  const std::string dir = golden_dir(GetParam());
  EXPECT_LE(difference_to(dir, Golden::load(dir), DType::kBF16, "cpu", 64), kBf16LinearBound);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest, ::testing::ValuesIn(kDenseModels), by_folder);
INSTANTIATE_TEST_SUITE_P(Families, Bf16GoldenTest, ::testing::ValuesIn(kDenseModels), by_folder);
INSTANTIATE_TEST_SUITE_P(Experts, GoldenTest, ::testing::ValuesIn(kModelsWithExperts), by_folder);
INSTANTIATE_TEST_SUITE_P(Linear, GoldenTest, ::testing::ValuesIn(kLinearModels), by_folder);
INSTANTIATE_TEST_SUITE_P(Linear, Bf16LinearGoldenTest, ::testing::ValuesIn(kLinearModels),
                         by_folder);
INSTANTIATE_TEST_SUITE_P(LinearExperts, GoldenTest, ::testing::ValuesIn(kLinearModelsWithExperts),
                         by_folder);

class BundledModelTest : public ::testing::TestWithParam<const char*> {
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
                         ::testing::Values("needle-3m", "pairs-400k", "partial-400k", "alibi-400k"),
                         by_folder);

}  // namespace
}  // namespace fasa
