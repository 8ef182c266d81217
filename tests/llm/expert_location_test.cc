// Experts in host memory: the same logits, memory where the plan puts it, and only chosen experts
// transferred over the link.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/llm/compute/model_memory.h"
#include "tests/llm/llm_fixture.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

using namespace llm_test;

constexpr WeightOptions kOnHost = [] {
  WeightOptions weights;
  weights.experts = ExpertLocation::kHost;
  return weights;
}();

struct Folder {
  const char* name;
  const char* file = "";
  std::string path() const { return golden_dir(name) + (*file == 0 ? "" : "/") + file; }
};

class ExpertLocations : public ::testing::TestWithParam<Folder> {
 protected:
  // The last three tokens are decoded.
  std::vector<float> logits(Device& device, const WeightOptions& weights) const {
    Model model = Model::load(GetParam().path(), device, DType::kF32, weights);
    const auto runtime = full_runtime(model);
    const SequenceId id = runtime->create();
    const std::span<const int32_t> tokens(golden_.tokens);
    const auto prompt = static_cast<int>(tokens.size()) - 3;
    std::vector<float> all;
    for (size_t at = 0; at < tokens.size();) {
      const StepMode mode = at == 0 ? StepMode::kPrefill : StepMode::kDecode;
      const StepSequence step[] = {{id, at == 0 ? prompt : 1, mode}};
      const auto count = static_cast<size_t>(step[0].tokens);
      const auto given =
          model.step(*runtime, tokens.subspan(at, count), step, {.all_logits = true});
      all.insert(all.end(), given.begin(), given.end());
      at += count;
    }
    return all;
  }
  Golden golden_ = Golden::load(golden_dir(GetParam().name));
};

TEST_P(ExpertLocations, LogitsAreTheSame) {
  for (const char* const name : {"cpu", "emulated"}) {
    const auto device = open_test_device(name);
    EXPECT_EQ(logits(*device, kOnHost), logits(*device, {})) << name;
  }
  FakeCuda fake;
  DeviceOptions options;
  options.name = "cuda:0";
  const auto device = open_device(options, fake.platform());
  EXPECT_EQ(logits(*device, kOnHost), logits(*device, {}));
}

// The planned memory equals the memory in use, on host and device.
TEST_P(ExpertLocations, MemoryIsWhatIsPredicted) {
  const auto device = open_test_device("emulated");
  const auto used = [&](MemorySpace space) { return device->memory(space).used_bytes; };
  const ModelConfig config = Model::load(GetParam().path(), *device, DType::kF32, {}).config();
  const auto planned = [&](const WeightOptions& weights) {
    return model_memory(GetParam().path(), config, DType::kF32, weights, 1).weights;
  };
  const WeightBytes on_device = planned({}), on_host = planned(kOnHost);
  EXPECT_EQ(on_device.host, 0u);
  EXPECT_EQ(on_device.fetched(), 0u);
  EXPECT_EQ(on_host.fetched(), on_device.chosen);
  EXPECT_EQ(on_host.layers + on_host.fetched(), on_device.layers);
  EXPECT_GE(on_host.host, on_host.experts);
  EXPECT_EQ(on_host.experts, on_device.experts);
  EXPECT_EQ(on_host.total + on_host.host, on_device.total);
  for (const WeightOptions& weights : {WeightOptions{}, kOnHost}) {
    const uint64_t device_before = used(MemorySpace::kDevice);
    const uint64_t host_before = used(MemorySpace::kHost);
    {
      const Model model = Model::load(GetParam().path(), *device, DType::kF32, weights);
      const WeightBytes expected = planned(weights);
      EXPECT_EQ(model.weight_bytes().total, expected.total);
      EXPECT_EQ(used(MemorySpace::kDevice) - device_before, expected.total);
      EXPECT_EQ(used(MemorySpace::kHost) - host_before, expected.host);
    }
    EXPECT_EQ(used(MemorySpace::kDevice), device_before);
    EXPECT_EQ(used(MemorySpace::kHost), host_before);
  }
}

// A step reads the chosen experts over the link, and no others.
TEST_P(ExpertLocations, ATokenFetchesWhatItChose) {
  const auto device = open_test_device("emulated");
  const auto fetched = [&](const WeightOptions& weights) {
    Model model = Model::load(GetParam().path(), *device, DType::kF32, weights);
    const auto runtime = full_runtime(model);
    const SequenceId id = runtime->create();
    const StepSequence fill[] = {{id, 8, StepMode::kPrefill}};
    model.step(*runtime, std::span(golden_.tokens).first(8), fill, {});
    const uint64_t before = device->transfers().h2d_bytes;
    const StepSequence next[] = {{id, 1, StepMode::kDecode}};
    model.step(*runtime, std::span(golden_.tokens).subspan(8, 1), next, {});
    return std::pair(device->transfers().h2d_bytes - before, model.weight_bytes());
  };
  const auto [host_bytes, on_host] = fetched(kOnHost);
  const auto [device_bytes, on_device] = fetched({});
  EXPECT_EQ(host_bytes - device_bytes, on_host.fetched());
  EXPECT_GT(on_host.fetched(), 0u);
}

TEST(ExpertLocation, HostMemoryHasALimit) {
  DeviceOptions options;
  options.name = "emulated";
  options.host_memory = uint64_t{64} << 10;
  const auto device = open_device(options);
  try {
    Model::load(golden_dir("qwen3-moe"), *device, DType::kF32, kOnHost);
    ADD_FAILURE();
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.limit(), "host_memory");
  }
  EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, 0u);
  EXPECT_EQ(device->memory(MemorySpace::kHost).used_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ExpertLocations,
                         ::testing::Values(Folder{"qwen3-moe"}, Folder{"gpt-oss"},
                                           Folder{"deepseek-v2-moe"}, Folder{"packed-gpt-oss"},
                                           Folder{"packed-gguf-mixtral", "model.gguf"}),
                         [](const auto& tested) {
                           std::string name = tested.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace fasa
