// The kernels of expert layers, interpreted: against the processor's choice of experts, and against
// each pair's product alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cpu/model/row_calls.h"
#include "kernels/cuda/model/activate_inl.h"
#include "kernels/cuda/model/experts_inl.h"
#include "kernels/cuda/model/project_experts_inl.h"
#include "kernels/cuda/model/project_packed_experts_inl.h"
#include "kernels/cuda/model/unpack_inl.h"
#include "runtime/llm/compute/expert_work.h"
#include "tests/kernels/expert_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

using namespace expert_case;

class ExpertCalls : public ::testing::TestWithParam<SimtRun> {
 protected:
  SimtLauncher launcher(int capability = 90) { return SimtLauncher(interpreter_, 2, capability); }
  auto run(int capability = 90) {
    return [this, capability](const auto& params) { cuda::start(params, launcher(capability)); };
  }
  struct Choice {
    std::vector<int32_t> experts;
    std::vector<float> weights;
  };
  Choice choose(const ExpertShape& shape, const std::vector<float>& logits, const float* bias,
                const float* correction = nullptr) {
    const int64_t tokens = std::ssize(logits) / shape.count;
    const auto pairs = static_cast<size_t>(tokens * shape.chosen);
    Choice choice{std::vector<int32_t>(pairs, -1), std::vector<float>(pairs)};
    cuda::start(ChooseExpertsParams{.tokens = tokens,
                                    .count = shape.count,
                                    .chosen = shape.chosen,
                                    .groups = shape.groups,
                                    .chosen_groups = shape.chosen_groups,
                                    .normalised = shape.normalised,
                                    .sigmoid = shape.sigmoid,
                                    .scale = shape.scale,
                                    .logits = logits.data(),
                                    .bias = bias,
                                    .correction = correction,
                                    .experts = choice.experts.data(),
                                    .weights = choice.weights.data()},
                launcher());
    return choice;
  }
  SimtInterpreter interpreter_{GetParam().order, GetParam().seed};
};

TEST_P(ExpertCalls, TheChoiceIsTheProcessors) {
  const ExpertShape shapes[] = {
      {.count = 1, .chosen = 1},
      {.count = 4, .chosen = 2, .normalised = true},
      {.count = 33, .chosen = 33, .scale = 3},
      {.count = 64, .chosen = 6, .scale = 16, .groups = 8, .chosen_groups = 3},
      {.count = 128, .chosen = 8, .normalised = true},
      {.count = 6, .chosen = 4, .groups = 3, .chosen_groups = 1},  // more than the group contains
      {.count = 40, .chosen = 4, .normalised = true, .sigmoid = true, .scale = 2.5},
      {.count = 3, .chosen = 2, .sigmoid = true},
  };
  constexpr int64_t kTokens = 4;
  for (const ExpertShape& shape : shapes) {
    std::vector<float> logits = randoms(kTokens * shape.count, 3);
    const std::vector<float> bias = randoms(shape.count, 4);
    const std::vector<float> corrections = randoms(shape.count, 5);
    const float* const correction = shape.sigmoid ? corrections.data() : nullptr;
    // The second token has ties only, the third nothing but one value.
    std::fill_n(logits.begin() + shape.count, shape.count, 0.5f);
    std::fill_n(logits.begin() + 2 * shape.count, shape.count,
                -std::numeric_limits<float>::infinity());
    logits[static_cast<size_t>(3 * shape.count - 1)] = 1;
    for (const bool biased : {false, true}) {
      const Choice choice = choose(shape, logits, biased ? bias.data() : nullptr, correction);
      for (int64_t token = 0; token < kTokens; ++token) {
        std::vector<float> expected(logits.begin() + token * shape.count,
                                    logits.begin() + (token + 1) * shape.count);
        for (int i = 0; biased && i < shape.count; ++i) {
          expected[static_cast<size_t>(i)] += bias[static_cast<size_t>(i)];
        }
        route(shape, expected.data(), nullptr, correction);
        float left = 0;  // weight of experts that the choice lacks
        for (const float weight : expected) left += weight;
        for (int i = 0; i < shape.chosen; ++i) {
          const auto at = static_cast<size_t>(token * shape.chosen + i);
          const int32_t expert = choice.experts[at];
          ASSERT_GE(expert, i == 0 ? 0 : choice.experts[at - 1] + 1);
          ASSERT_LT(expert, shape.count);
          const float weight = expected[static_cast<size_t>(expert)];
          EXPECT_NEAR(choice.weights[at], weight, 1e-5f * shape.scale)
              << shape.count << " token " << token << " expert " << expert;
          left -= weight;
        }
        EXPECT_NEAR(left, 0, 1e-5f * shape.scale) << shape.count << " token " << token;
      }
    }
  }
}

// For logits that are NaN the kernel still chooses valid experts.
TEST_P(ExpertCalls, WhatIsNoNumberChoosesSomething) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> logits(2 * 40, nan);
  logits[50] = 1;
  const Choice choice = choose({.count = 40, .chosen = 3}, logits, nullptr);
  for (size_t i = 0; i < choice.experts.size(); ++i) {
    EXPECT_GE(choice.experts[i], i % 3 == 0 ? 0 : choice.experts[i - 1] + 1);
    EXPECT_LT(choice.experts[i], 40);
  }
}

// Several matrices unpacked in one call equal each one alone; those without rows are skipped.
TEST_P(ExpertCalls, WhatIsUnpackedTogether) {
  for (const bool ordered : {false, true}) {
    const packed_case::NamedFormat& named = packed_case::formats().front();
    const PackedExperts experts(named.format, 3, 40, ordered);
    const int64_t matrix = kPackedColumns * experts.inputs;
    const std::vector<int32_t> rows = {4, 7, 7, 8};  // the second has none
    std::vector<simt::Word16> plain(static_cast<size_t>(3 * matrix) / 4 + 1);
    std::fill(plain.begin(), plain.end(), simt::Word16{{1, 1, 1, 1}});
    const auto untouched = plain;
    cuda::start(UnpackParams{.dtype = DType::kF32,
                             .columns = kPackedColumns,
                             .weights = experts.weights,
                             .plain = plain.data(),
                             .batch = 3,
                             .panels_step = experts.panels_step(),
                             .order_step = experts.order_step(),
                             .rows = rows.data()},
                launcher());
    for (int64_t expert = 0; expert < 3; ++expert) {
      std::vector<simt::Word16> alone = untouched;
      if (expert != 1) {
        cuda::start(UnpackParams{.dtype = DType::kF32,
                                 .columns = kPackedColumns,
                                 .weights = experts.of(expert),
                                 .plain = alone.data()},
                    launcher());
      }
      for (int64_t i = 0; i < matrix; ++i) {
        ASSERT_EQ(load_element(DType::kF32, plain.data(), expert * matrix + i),
                  load_element(DType::kF32, alone.data(), i))
            << expert << " at " << i;
      }
    }
  }
}

TEST_P(ExpertCalls, RowsTakeTheirExpertsBiasAndClampedGates) {
  constexpr int64_t kRows = 5, kSize = 300, kStep = 2 * kSize + 4;
  const auto x = randoms(kRows * 2 * kSize, 1), bias = randoms(4 * kStep, 2);
  const std::vector<int32_t> experts = {0, 1, 1, 3, 3};
  for (const bool clamped : {false, true}) {
    for (const bool interleaved : {false, true}) {
      if (interleaved && !clamped) continue;
      std::vector<float> out(kRows * kSize), expected = out;
      ActivateParams params = {.tokens = kRows,
                               .size = kSize,
                               .interleaved = interleaved,
                               .x = x.data(),
                               .bias = bias.data(),
                               .bias_rows = experts.data(),
                               .bias_step = kStep,
                               .dtype = DType::kF32,
                               .out = out.data()};
      if (clamped) params.clamped = ClampedGate{.alpha = 1.7f, .limit = 1};
      cuda::start(params, launcher());
      params.out = expected.data();
      cpu::run_on_rows(params);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], expected[i], 2e-6 * (1 + std::abs(expected[i]))) << i;
      }
    }
  }
}

TEST_P(ExpertCalls, PairsLieByExpertThenByToken) { expect_arranged(run()); }

TEST_P(ExpertCalls, PairsMeetTheirExpertsWeights) {
  for (const ProductCase& c : kProductCases) expect_products(run(c.capability), c);
}

TEST_P(ExpertCalls, PackedPairsHaveTheBitsOfTheirRows) { expect_packed_products(run()); }

TEST_P(ExpertCalls, WhatATokensExpertsGiveIsSummedInTheirOrder) { expect_mixed(run()); }

INSTANTIATE_TEST_SUITE_P(Orders, ExpertCalls, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
