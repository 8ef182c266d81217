// Packed weights on the CUDA device, over a fake runtime on the host: the kernels that read them
// are interpreted; products of the matrices that prefill unpacks are a plain loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "runtime/llm/compute/model_memory.h"
#include "tests/llm/llm_fixture.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

using namespace llm_test;

// Matrices packed in a file stay packed: codes of 2 to 8 bits, tables, floats, scale groups in any
// order, and inputs that end within a scale group.
class PackedModel : public ::testing::TestWithParam<const char*> {
 protected:
  std::string path() const {
    const std::string folder = golden_dir(GetParam());
    return std::string(GetParam()).starts_with("packed-gguf") ? folder + "/model.gguf" : folder;
  }
  // The last three tokens are decoded.
  std::vector<float> logits(Device& device, DType dtype) const {
    Model model = Model::load(path(), device, dtype);
    const auto runtime = full_runtime(model);
    const SequenceId sequence = runtime->create();
    const std::span<const int32_t> tokens(golden_.tokens);
    const int prompt = static_cast<int>(tokens.size()) - 3;
    std::vector<float> all;
    for (size_t at = 0; at < tokens.size();) {
      const bool prefills = at == 0;
      const StepSequence step[] = {
          {sequence, prefills ? prompt : 1, prefills ? StepMode::kPrefill : StepMode::kDecode}};
      const auto count = static_cast<size_t>(step[0].tokens);
      const auto given =
          model.step(*runtime, tokens.subspan(at, count), step, {.all_logits = true});
      all.insert(all.end(), given.begin(), given.end());
      at += count;
    }
    return all;
  }
  double difference(const std::vector<float>& logits) const {
    return relative_difference(logits, golden_, 64);
  }
  Golden golden_ = Golden::load(golden_dir(GetParam()));
};

TEST_P(PackedModel, PrefillAndDecodeHaveTheLogitsOfUnpackedWeights) {
  FakeCuda fake;
  {
    const auto device = open_fake(fake);
    EXPECT_LT(difference(logits(*device, DType::kF32)), kF32Bound);
    // Activations and unpacked matrices are rounded to bf16, as on the processor.
    const auto cpu = open_test_device("cpu");
    const std::vector<float> given = logits(*device, DType::kBF16);
    const std::vector<float> expected = logits(*cpu, DType::kBF16);
    ASSERT_EQ(given.size(), expected.size());
    double most = 0, worst = 0;
    for (size_t i = 0; i < given.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(expected[i])));
      worst = std::max(worst, std::abs(static_cast<double>(given[i]) - expected[i]));
    }
    EXPECT_LT(worst, kBf16Bound * most);
  }
  EXPECT_EQ(fake.device_bytes, 0u);
}

// In bf16 a router may choose another expert than in f32.
using PackedExpertModel = PackedModel;

TEST_P(PackedExpertModel, PrefillAndDecodeHaveTheLogitsOfUnpackedWeights) {
  FakeCuda fake;
  const auto device = open_fake(fake);
  EXPECT_LT(difference(logits(*device, DType::kF32)), kF32Bound);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PackedExpertModel,
                         ::testing::Values("packed-gpt-oss", "packed-gguf-qwen3moe",
                                           "packed-gguf-low-bits-moe", "packed-gguf-mixtral",
                                           "packed-gguf-gpt-oss", "packed-gguf-qwen35",
                                           "packed-gguf-qwen35moe", "packed-gguf-qwen3next"),
                         by_folder);

// The planned memory equals the device's count.
TEST_P(PackedModel, TakesTheMemoryThatIsPredicted) {
  FakeCuda fake;
  const auto device = open_fake(fake);
  Model model = Model::load(path(), *device, DType::kBF16);
  const ModelMemory planned =
      model_memory(path(), model.config(), DType::kBF16, {}, 40, PanelOrder::kPlain);
  EXPECT_EQ(planned.weights.total, model.weight_bytes().total);
  EXPECT_GT(planned.weights.kernel_scratch, 0u);
  const ModelMemory host = model_memory(path(), model.config(), DType::kBF16, {}, 40);
  // Orders of inputs lie beside the codes; unpacked parts are not padded to panels.
  EXPECT_LT(static_cast<double>(planned.weights.layers),
            1.05 * static_cast<double>(host.weights.layers));
  model.reserve(40);
  constexpr uint64_t kSmallThings = 4096;  // the products' scratch, frequencies and positions
  const uint64_t used = device->memory(MemorySpace::kDevice).used_bytes;
  EXPECT_GE(used, planned.total());
  EXPECT_LE(used, planned.total() + kSmallThings);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PackedModel,
                         ::testing::Values("packed-awq", "packed-gptq-act", "packed-gptq-v2-8bit",
                                           "packed-ct", "packed-ct-ragged", "packed-ct-act",
                                           "packed-ct-mxfp4", "packed-nf4-nested",
                                           "packed-fp8-blocks", "packed-gguf-low-bits",
                                           "packed-gguf-llama", "packed-gguf-qwen3",
                                           "packed-gguf-phi3", "packed-gguf-gemma2",
                                           "packed-gguf-gemma3"),
                         by_folder);

}  // namespace
}  // namespace fasa
