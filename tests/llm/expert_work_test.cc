// The experts that a token is routed to, and their weights.
#include "runtime/llm/compute/expert_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/model/elementwise.h"

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

// Only the best expert group is chosen from: 0.3 is in another one.
TEST(Route, OnlyTheBestGroupsAreChosenFrom) {
  expect_near(routed({.count = 6, .chosen = 2, .groups = 3, .chosen_groups = 1},
                     {0.05f, 0.3f, 0.35f, 0.1f, 0.1f, 0.1f}),
              {0, 0, 0.35f, 0.1f, 0, 0});
}

// The correction decides the choice alone; weights are the sigmoids.
TEST(Route, CorrectedChoiceOfSigmoids) {
  const ExpertShape shape{.count = 3, .chosen = 2, .sigmoid = true};
  const std::vector<float> correction = {-2, 0, 0.5f};
  std::vector<float> logits = {2, 0, -1};
  route(shape, logits.data(), nullptr, correction.data());
  expect_near(logits, {0, 0.5f, 1 / (1 + std::exp(1.0f))});
  logits = {2, 0, -1};
  ExpertShape normalised = shape;
  normalised.normalised = true;
  normalised.scale = 3;
  route(normalised, logits.data(), nullptr, correction.data());
  EXPECT_NEAR(logits[1] + logits[2], 3, 1e-6);
}

// Logits far apart: the other experts' shares are 0, and no weight is NaN.
TEST(Route, OneExpertMayTakeAll) {
  std::vector<float> logits = {-1e30f, 200.0f, -200.0f};
  route({.count = 3, .chosen = 2, .normalised = true}, logits.data());
  expect_near(logits, {0, 1, 0});
}

TEST(ClampedGate, IsWhatItsFormulaSays) {
  const std::vector<float> gates = {1, -3, 9, -9}, ups = {2, -0.5f, 9, -9};
  const std::vector<float> gate_biases = {0.5f, 0, 0, 0}, up_biases = {0, 0.25f, 0, 0};
  const ClampedGate how{.alpha = 2, .limit = 4};
  const auto joined = [](bool interleaved, const std::vector<float>& a,
                         const std::vector<float>& b) {
    std::vector<float> both(8);
    for (size_t i = 0; i < 4; ++i) {
      both[interleaved ? 2 * i : i] = a[i];
      both[interleaved ? 2 * i + 1 : i + 4] = b[i];
    }
    return both;
  };
  for (const bool interleaved : {false, true}) {
    for (const bool biased : {false, true}) {
      const std::vector<float> gate_up = joined(interleaved, gates, ups);
      const std::vector<float> bias = joined(interleaved, gate_biases, up_biases);
      std::vector<float> out(4);
      std::vector<uint16_t> bf16(4);
      const float* added = biased ? bias.data() : nullptr;
      activate_clamped(how, interleaved, gate_up.data(), added, 4, DType::kF32, out.data());
      activate_clamped(how, interleaved, gate_up.data(), added, 4, DType::kBF16, bf16.data());
      for (size_t i = 0; i < 4; ++i) {
        const double g = std::min(4.0, double{gates[i]} + (biased ? gate_biases[i] : 0));
        const double u = std::clamp(double{ups[i]} + (biased ? up_biases[i] : 0), -4.0, 4.0);
        const double expected = g / (1 + std::exp(-2 * g)) * (u + 1);
        EXPECT_NEAR(out[i], expected, 1e-6 * (1 + std::abs(expected))) << i;
        EXPECT_EQ(bf16[i], bf16_from_f32(out[i])) << i;
      }
    }
  }
}

TEST(ScaleRow, EachElementIsRoundedOnce) {
  std::vector<float> x = {0, -1, 3.25f, 1e30f, -0.0f};
  std::vector<uint16_t> bf16;
  for (const float value : x) bf16.push_back(bf16_from_f32(value));
  const std::vector<uint16_t> before = bf16;
  scale_row(0.3f, 5, DType::kBF16, bf16.data());
  for (size_t i = 0; i < bf16.size(); ++i) {
    EXPECT_EQ(bf16[i], bf16_from_f32(f32_from_bf16(before[i]) * 0.3f)) << i;
  }
  scale_row(0.5f, 3, DType::kF32, x.data());
  EXPECT_EQ(x, (std::vector<float>{0, -0.5f, 1.625f, 1e30f, -0.0f}));
}

}  // namespace
}  // namespace fasa
