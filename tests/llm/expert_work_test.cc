// Which experts a token goes through, and with what weights.
#include "runtime/llm/expert_work.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/llm/model.h"
#include "tests/llm/llm_fixture.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

std::vector<float> routed(const ExpertShape& shape, std::vector<float> probabilities) {
  for (float& p : probabilities) p = std::log(p);
  route(shape, probabilities.data());
  return probabilities;
}

void expect_near(const std::vector<float>& weights, const std::vector<float>& expected) {
  ASSERT_EQ(weights.size(), expected.size());
  for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(weights[i], expected[i], 1e-6) << i;
}

TEST(Route, TheBestKeepTheirShareOfTheSoftmax) {
  expect_near(routed({.count = 4, .chosen = 2}, {0.1f, 0.4f, 0.2f, 0.3f}), {0, 0.4f, 0, 0.3f});
  expect_near(routed({.count = 4, .chosen = 2, .scale = 2}, {0.1f, 0.4f, 0.2f, 0.3f}),
              {0, 0.8f, 0, 0.6f});
  expect_near(routed({.count = 4, .chosen = 2, .normalised = true}, {0.1f, 0.4f, 0.1f, 0.4f}),
              {0, 0.5f, 0, 0.5f});
}

TEST(Route, AllOrOne) {
  expect_near(routed({.count = 3, .chosen = 3}, {0.5f, 0.2f, 0.3f}), {0.5f, 0.2f, 0.3f});
  expect_near(routed({.count = 1, .chosen = 1}, {1}), {1});
}

TEST(Route, TheFirstOfEqualOnesIsChosen) {
  expect_near(routed({.count = 4, .chosen = 2}, {0.25f, 0.25f, 0.25f, 0.25f}),
              {0.25f, 0.25f, 0, 0});
}

// The best expert's group alone: 0.3 is in another.
TEST(Route, OnlyTheBestGroupsAreChosenFrom) {
  expect_near(routed({.count = 6, .chosen = 2, .groups = 3, .chosen_groups = 1},
                     {0.05f, 0.3f, 0.35f, 0.1f, 0.1f, 0.1f}),
              {0, 0, 0.35f, 0.1f, 0, 0});
}

// Far logits: the others' shares are nothing, and no weight is no number.
TEST(Route, OneExpertMayTakeAll) {
  std::vector<float> logits = {-1e30f, 200.0f, -200.0f};
  route({.count = 3, .chosen = 2, .normalised = true}, logits.data());
  expect_near(logits, {0, 1, 0});
}

TEST(ExpertModels, DevicesWithoutSuchKernelsSayThat) {
  FakeCuda fake;
  DeviceOptions options;
  options.name = "cuda:0";
  const auto device = open_device(options, fake.platform());
  try {
    Model::load(llm_test::golden_dir("qwen3-moe"), *device, DType::kF32);
    FAIL() << "it was loaded";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("--device cpu, emulated"), std::string::npos);
  }
}

}  // namespace
}  // namespace fasa
