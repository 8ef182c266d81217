// Packed models in every supported layout against transformers' logits for the same weights
// unpacked: prefill, which unpacks panels, and decode, which multiplies packed weights directly.
#include <gtest/gtest.h>

#include "kernels/target.h"
#include "tests/llm/llm_fixture.h"

namespace fasa {
namespace {

using llm_test::Golden;

struct Case {
  Case(const char* folder, const char* in_folder = "") : name(folder), file(in_folder) {}
  const char* name;
  const char* file;  // a GGUF file's name in the folder
};

std::string path_of(const Case& test) {
  return llm_test::golden_dir(test.name) + (*test.file == '\0' ? "" : "/" + std::string(test.file));
}

// Logits of all tokens, one decode step each.
std::vector<float> decode_logits(Model& model, std::span<const int32_t> tokens) {
  const auto runtime = llm_test::full_runtime(model);
  const SequenceId sequence = runtime->create();
  std::vector<float> all;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const StepSequence step[] = {{sequence, 1, StepMode::kDecode}};
    const auto logits = model.step(*runtime, tokens.subspan(i, 1), step);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

class PackedGolden : public ::testing::TestWithParam<Case> {
 protected:
  Golden golden_ = Golden::load(llm_test::golden_dir(GetParam().name));
  std::unique_ptr<Device> device_ = llm_test::open_test_device("cpu");

  double difference(const std::vector<float>& logits) const {
    return llm_test::relative_difference(logits, golden_, 64);
  }
};

TEST_P(PackedGolden, PrefillHasTheLogitsOfUnpackedWeights) {
  Model model = Model::load(path_of(GetParam()), *device_, DType::kF32);
  EXPECT_LT(difference(llm_test::prefill_logits(model, golden_.tokens, 17)), llm_test::kF32Bound);
}

// Decode rounds what it multiplies weights by to 16 bits on a scale per 32: at most 2.5e-4 here.
TEST_P(PackedGolden, DecodeHasTheLogitsOfUnpackedWeights) {
  Model model = Model::load(path_of(GetParam()), *device_, DType::kF32);
  EXPECT_LT(difference(decode_logits(model, golden_.tokens)), 5 * llm_test::kF32Bound);
}

// Models with experts are excluded: their router may choose another expert for a rounded input.
class DensePackedGolden : public PackedGolden {};

TEST_P(DensePackedGolden, DecodeWithActivationsInBf16HasThemToo) {
  Model model = Model::load(path_of(GetParam()), *device_, DType::kBF16);
  EXPECT_LT(difference(decode_logits(model, golden_.tokens)), llm_test::kBf16Bound);
}

// A chunk of one token is still a prefill and gives the bits of a longer chunk.
TEST_P(PackedGolden, PrefillsBitsDontDependOnTheChunk) {
  Model model = Model::load(path_of(GetParam()), *device_, DType::kF32);
  const std::span<const int32_t> tokens(golden_.tokens.data(), 24);
  const std::vector<float> whole = llm_test::prefill_logits(model, tokens, 24);
  for (const size_t chunk : {1, 5}) {
    const std::vector<float> parts = llm_test::prefill_logits(model, tokens, chunk);
    EXPECT_EQ(std::memcmp(parts.data(), whole.data(), whole.size() * sizeof(float)), 0) << chunk;
  }
}

const Case kDense[] = {{"packed-awq"},
                       {"packed-gptq"},
                       {"packed-gptq-act"},
                       {"packed-gptq-v2-8bit"},
                       {"packed-ct"},
                       {"packed-ct-ragged"},
                       {"packed-ct-act"},
                       {"packed-ct-8bit"},
                       {"packed-ct-mxfp4"},
                       {"packed-nf4"},
                       {"packed-nf4-nested"},
                       {"packed-fp4"},
                       {"packed-fp8"},
                       {"packed-fp8-blocks"},
                       {"packed-fp8-ct"},
                       {"packed-gguf-llama", "model.gguf"},
                       {"packed-gguf-low-bits", "model.gguf"},
                       {"packed-gguf-qwen3", "model.gguf"},
                       {"packed-gguf-mistral3", "model.gguf"},
                       {"packed-gguf-olmo3", "model.gguf"},
                       {"packed-gguf-phi3", "model.gguf"},
                       {"packed-gguf-gemma2", "model.gguf"},
                       {"packed-gguf-gemma3", "model.gguf"},
                       {"packed-gguf-gemma4", "model.gguf"},
                       {"packed-gguf-granite", "model.gguf"},
                       {"packed-gguf-olmo2", "model.gguf"},
                       {"packed-gguf-qwen35", "model.gguf"},
                       {"packed-gguf-smollm3", "model.gguf"}};
const Case kWithExperts[] = {{"packed-gpt-oss"},
                             {"packed-gguf-qwen3moe", "model.gguf"},
                             {"packed-gguf-low-bits-moe", "model.gguf"},
                             {"packed-gguf-mixtral", "model.gguf"},
                             {"packed-gguf-gemma4-moe", "model.gguf"},
                             {"packed-gguf-qwen35moe", "model.gguf"},
                             {"packed-gguf-qwen3next", "model.gguf"},
                             {"packed-gguf-gpt-oss", "model.gguf"}};

std::string test_name(const ::testing::TestParamInfo<Case>& tested) {
  std::string name = tested.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, PackedGolden, ::testing::ValuesIn(kDense), test_name);
INSTANTIATE_TEST_SUITE_P(Layouts, DensePackedGolden, ::testing::ValuesIn(kDense), test_name);
INSTANTIATE_TEST_SUITE_P(Experts, PackedGolden, ::testing::ValuesIn(kWithExperts), test_name);

}  // namespace
}  // namespace fasa
