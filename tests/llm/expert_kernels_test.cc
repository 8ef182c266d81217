// The kernels of layers of experts, interpreted: against the processor's choice, and against the
// products that each pair has alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cpu/model/row_calls.h"
#include "kernels/cuda/activate_inl.h"
#include "kernels/cuda/experts_inl.h"
#include "kernels/cuda/project_experts_inl.h"
#include "kernels/cuda/project_packed_experts_inl.h"
#include "kernels/cuda/unpack_inl.h"
#include "runtime/llm/expert_work.h"
#include "tests/kernels/packed_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

constexpr float kUntouched = -7;

std::vector<float> randoms(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

// Elements that begin at a whole word.
struct Elements {
  DType dtype;
  std::vector<simt::Word16> words;

  Elements(DType type, const std::vector<float>& values)
      : dtype(type), words(values.size() * sizeof(float) / 16 + 1) {
    for (size_t i = 0; i < values.size(); ++i) {
      store_element(dtype, words.data(), static_cast<int64_t>(i), values[i]);
    }
  }
  double operator[](int64_t i) const { return load_element(dtype, words.data(), i); }
};

// What the device finds out of what was chosen, in memory of its own.
struct Pairs {
  std::vector<int32_t> chosen, experts, rows, first, places;
  ExpertPairs view;

  Pairs(std::vector<int32_t> of_tokens, int each, int count)
      : chosen(std::move(of_tokens)),
        experts(chosen.size(), -1),
        rows(chosen.size(), -1),
        first(static_cast<size_t>(count) + 1, -1),
        places(chosen.size(), -1),
        view{.tokens = std::ssize(chosen) / each,
             .chosen = each,
             .count = count,
             .experts = experts.data(),
             .rows = rows.data(),
             .first = first.data(),
             .places = places.data()} {}
};

// Of each token `each` experts, ascending; never the last one, where there are others.
std::vector<int32_t> draw(int64_t tokens, int each, int count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> all(static_cast<size_t>(count > each ? count - 1 : count)), drawn;
  std::iota(all.begin(), all.end(), 0);
  for (int64_t token = 0; token < tokens; ++token) {
    std::shuffle(all.begin(), all.end(), random);
    std::sort(all.begin(), all.begin() + each);
    drawn.insert(drawn.end(), all.begin(), all.begin() + each);
    std::sort(all.begin(), all.end());
  }
  return drawn;
}

class ExpertCalls : public testing::TestWithParam<SimtRun> {
 protected:
  SimtLauncher launcher(int capability = 90) { return SimtLauncher(interpreter_, 2, capability); }
  Pairs arranged(int64_t tokens, int each, int count, unsigned seed = 5) {
    Pairs pairs(draw(tokens, each, count, seed), each, count);
    cuda::start(ArrangeExpertsParams{.chosen = pairs.chosen.data(), .pairs = pairs.view},
                launcher());
    return pairs;
  }
  struct Choice {
    std::vector<int32_t> experts;
    std::vector<float> weights;
  };
  Choice choose(const ExpertShape& shape, const std::vector<float>& logits, const float* bias) {
    const int64_t tokens = std::ssize(logits) / shape.count;
    const auto pairs = static_cast<size_t>(tokens * shape.chosen);
    Choice choice{std::vector<int32_t>(pairs, -1), std::vector<float>(pairs)};
    cuda::start(ChooseExpertsParams{.tokens = tokens,
                                    .count = shape.count,
                                    .chosen = shape.chosen,
                                    .groups = shape.groups,
                                    .chosen_groups = shape.chosen_groups,
                                    .normalised = shape.normalised,
                                    .scale = shape.scale,
                                    .logits = logits.data(),
                                    .bias = bias,
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
      {.count = 6, .chosen = 4, .groups = 3, .chosen_groups = 1},  // more than the group has
  };
  constexpr int64_t kTokens = 4;
  for (const ExpertShape& shape : shapes) {
    std::vector<float> logits = randoms(kTokens * shape.count, 3);
    const std::vector<float> bias = randoms(shape.count, 4);
    // Ties in the second token, nothing but one in the third.
    std::fill_n(logits.begin() + shape.count, shape.count, 0.5f);
    std::fill_n(logits.begin() + 2 * shape.count, shape.count,
                -std::numeric_limits<float>::infinity());
    logits[static_cast<size_t>(3 * shape.count - 1)] = 1;
    for (const bool biased : {false, true}) {
      const Choice choice = choose(shape, logits, biased ? bias.data() : nullptr);
      for (int64_t token = 0; token < kTokens; ++token) {
        std::vector<float> expected(logits.begin() + token * shape.count,
                                    logits.begin() + (token + 1) * shape.count);
        for (int i = 0; biased && i < shape.count; ++i) {
          expected[static_cast<size_t>(i)] += bias[static_cast<size_t>(i)];
        }
        route(shape, expected.data());
        float left = 0;  // of weights that the choice lacks
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

// A router may give anything: what is chosen are experts, all the same.
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

TEST_P(ExpertCalls, PairsLieByExpertThenByToken) {
  struct Case {
    int64_t tokens;
    int each, count;
  };
  for (const Case& c : {Case{1, 1, 1}, {1, 8, 128}, {3, 2, 4}, {150, 4, 9}, {300, 1, 2}}) {
    const Pairs pairs = arranged(c.tokens, c.each, c.count);
    std::vector<std::pair<int32_t, int32_t>> expected;  // expert, token
    for (size_t i = 0; i < pairs.chosen.size(); ++i) {
      expected.emplace_back(pairs.chosen[i], static_cast<int32_t>(i) / c.each);
    }
    std::sort(expected.begin(), expected.end());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(std::pair(pairs.experts[i], pairs.rows[i]), expected[i]) << i;
      const auto place = static_cast<size_t>(pairs.places[i]);
      ASSERT_EQ(pairs.experts[place], pairs.chosen[i]);
      ASSERT_EQ(pairs.rows[place], static_cast<int32_t>(i) / c.each);
    }
    for (int32_t expert = 0; expert <= c.count; ++expert) {
      const auto before = std::count_if(pairs.chosen.begin(), pairs.chosen.end(),
                                        [=](int32_t chosen) { return chosen < expert; });
      ASSERT_EQ(pairs.first[static_cast<size_t>(expert)], before) << expert;
    }
  }
}

struct ProductCase {
  DType dtype;
  int64_t tokens, inputs, columns;
  int each, count;
  int capability = 90;
};

TEST_P(ExpertCalls, PairsMeetTheirExpertsWeights) {
  const ProductCase cases[] = {
      {DType::kF32, 1, 100, 9, 3, 8},    {DType::kF32, 7, 33, 5, 2, 3},
      {DType::kBF16, 1, 264, 10, 8, 16}, {DType::kBF16, 9, 40, 12, 2, 2},
      {DType::kBF16, 40, 72, 30, 2, 5},  {DType::kBF16, 150, 40, 20, 1, 2},
      {DType::kBF16, 40, 9, 6, 2, 5},    {DType::kBF16, 20, 40, 8, 2, 4, 75},
  };
  for (const ProductCase& c : cases) {
    const Pairs pairs = arranged(c.tokens, c.each, c.count);
    const int64_t matrix = c.inputs * c.columns, step = matrix + 8;
    const Elements weights(c.dtype, randoms(c.count * step, 2));
    for (const PairInput input : {PairInput::kToken, PairInput::kPair}) {
      const Elements x(c.dtype, randoms(pairs.view.pairs() * c.inputs, 1));
      // All experts, and all but the first and the last.
      for (const int left_out : {0, c.count > 2 ? 1 : 0}) {
        const int64_t stride = c.columns + 3;
        std::vector<float> y(static_cast<size_t>(pairs.view.pairs() * stride), kUntouched);
        const ProjectParams product = {
            .dtype = c.dtype,
            .rows = pairs.view.pairs(),
            .inputs = c.inputs,
            .columns = c.columns,
            .y_stride = stride,
            .weights_step = step,
            .x = x.words.data(),
            .weights = reinterpret_cast<const std::byte*>(weights.words.data()) +
                       left_out * step * dtype_bytes(c.dtype),
            .y = y.data()};
        cuda::start(ProjectExpertsParams{.product = product,
                                         .pairs = pairs.view,
                                         .input = input,
                                         .first_expert = left_out,
                                         .experts = c.count - 2 * left_out},
                    launcher(c.capability));
        for (int64_t pair = 0; pair < pairs.view.pairs(); ++pair) {
          const int32_t expert = pairs.experts[static_cast<size_t>(pair)];
          const bool meant = expert >= left_out && expert < c.count - left_out;
          const int64_t row =
              input == PairInput::kToken ? pairs.rows[static_cast<size_t>(pair)] : pair;
          for (int64_t column = 0; column < stride; ++column) {
            double sum = 0;
            for (int64_t i = 0; column < c.columns && i < c.inputs; ++i) {
              sum += x[row * c.inputs + i] * weights[expert * step + column * c.inputs + i];
            }
            ASSERT_NEAR(y[static_cast<size_t>(pair * stride + column)],
                        meant && column < c.columns ? sum : double{kUntouched},
                        1e-6 * static_cast<double>(c.inputs))
                << c.tokens << "x" << c.inputs << " pair " << pair << " column " << column;
          }
        }
      }
    }
  }
}

// Packed matrices of one format, one behind the other, each with an order of its own.
struct PackedExperts {
  static constexpr int64_t kPanels = 2;  // of an expert
  int64_t inputs, outputs;
  packed_case::Packed all;
  std::vector<int32_t> order;
  PackedWeights weights;

  PackedExperts(const PackedFormat& format, int count, int64_t in, bool ordered)
      : inputs(in),
        outputs(kPanels * kPackedColumns - 3),
        all(format, count * kPanels * kPackedColumns, in),
        weights{.format = format, .panel = all.panel(), .inputs = in, .panels = all.data()} {
    if (!ordered) return;
    const int64_t places = weights.places();
    for (int expert = 0; expert < count; ++expert) {
      for (int64_t place = 0; place < places; ++place) {
        const int64_t input = (place + expert + 1) % places;
        order.push_back(input < inputs ? static_cast<int32_t>(input) : -1);
      }
    }
    weights.order = order.data();
  }
  int64_t panels_step() const { return kPanels * all.panel().bytes; }
  int64_t order_step() const { return order.empty() ? 0 : weights.places(); }
  PackedWeights of(int64_t expert) const {
    PackedWeights one = weights;
    one.panels += expert * panels_step();
    if (one.order != nullptr) one.order += expert * order_step();
    return one;
  }
};

// Whatever its company, a pair has the bits that its row has alone.
TEST_P(ExpertCalls, PackedPairsHaveTheBitsOfTheirRows) {
  struct Case {
    int64_t tokens, inputs;
    int each, count;
    bool ordered;
  };
  const Case cases[] = {{1, 72, 2, 4, false}, {1, 45, 2, 4, false}, {6, 64, 3, 4, false},
                        {6, 45, 3, 4, false}, {1, 64, 2, 3, true},  {9, 40, 2, 3, true}};
  for (const packed_case::NamedFormat& named : packed_case::formats()) {
    for (const Case& c : cases) {
      const PackedExperts experts(named.format, c.count, c.inputs, c.ordered);
      const Pairs pairs = arranged(c.tokens, c.each, c.count);
      const DType dtype = c.tokens == 6 ? DType::kF32 : DType::kBF16;
      const Elements x(dtype, randoms(pairs.view.pairs() * c.inputs, 1));
      const int64_t stride = experts.outputs + 2;
      std::vector<simt::Word16> scratch(
          static_cast<size_t>(ProjectPackedParams::scratch_bytes(experts.weights, dtype) / 16));
      const auto project = [&](const PackedWeights& weights, const void* rows, int64_t count,
                               float* y) {
        return ProjectPackedParams{.dtype = dtype,
                                   .rows = count,
                                   .columns = experts.outputs,
                                   .y_stride = stride,
                                   .weights = weights,
                                   .x = rows,
                                   .y = y,
                                   .scratch = reinterpret_cast<std::byte*>(scratch.data())};
      };
      for (const PairInput input : {PairInput::kToken, PairInput::kPair}) {
        std::vector<float> y(static_cast<size_t>(pairs.view.pairs() * stride), kUntouched);
        cuda::start(ProjectPackedExpertsParams{.product = project(experts.weights, x.words.data(),
                                                                  pairs.view.pairs(), y.data()),
                                               .panels_step = experts.panels_step(),
                                               .order_step = experts.order_step(),
                                               .pairs = pairs.view,
                                               .input = input},
                    launcher());
        for (size_t pair = 0; pair < pairs.experts.size(); ++pair) {
          const auto row = input == PairInput::kToken ? pairs.rows[pair] : static_cast<int>(pair);
          std::vector<float> values(static_cast<size_t>(c.inputs));
          for (size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<float>(x[row * c.inputs + static_cast<int64_t>(i)]);
          }
          const Elements one(dtype, values);
          std::vector<float> alone(static_cast<size_t>(stride), kUntouched);
          cuda::start(project(experts.of(pairs.experts[pair]), one.words.data(), 1, alone.data()),
                      launcher());
          ASSERT_TRUE(std::equal(alone.begin(), alone.end(),
                                 y.begin() + static_cast<int64_t>(pair) * stride))
              << named.name << " " << c.inputs << " pair " << pair;
        }
      }
    }
  }
}

// Several matrices in one call, as each alone; those without rows are left out.
TEST_P(ExpertCalls, WhatIsUnpackedTogether) {
  for (const bool ordered : {false, true}) {
    const packed_case::NamedFormat& named = packed_case::formats().front();
    const PackedExperts experts(named.format, 3, 40, ordered);
    const int64_t matrix = kPackedColumns * experts.inputs;
    const std::vector<int32_t> rows = {4, 7, 7, 8};  // none for the second
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

TEST_P(ExpertCalls, WhatATokensExpertsGiveIsSummedInTheirOrder) {
  constexpr int64_t kTokens = 6, kSize = 300;
  constexpr int kEach = 3, kCount = 5;
  const Pairs pairs = arranged(kTokens, kEach, kCount);
  const auto results = randoms(pairs.view.pairs() * kSize, 1);
  const auto bias = randoms(kCount * (kSize + 4), 2), weights = randoms(kTokens * kEach, 3);
  for (const bool biased : {false, true}) {
    std::vector<float> mixed(kTokens * kSize, kUntouched);
    cuda::start(MixExpertsParams{.pairs = pairs.view,
                                 .size = kSize,
                                 .weights = weights.data(),
                                 .results = results.data(),
                                 .bias = biased ? bias.data() : nullptr,
                                 .bias_step = kSize + 4,
                                 .mixed = mixed.data()},
                launcher());
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t i = 0; i < kSize; ++i) {
        float sum = 0;
        for (int64_t at = token * kEach; at < (token + 1) * kEach; ++at) {
          const auto index = static_cast<size_t>(at);
          float result = results[static_cast<size_t>(pairs.places[index] * kSize + i)];
          const int64_t of = pairs.chosen[index] * (kSize + 4) + i;
          if (biased) result += bias[static_cast<size_t>(of)];
          sum += weights[index] * result;
        }
        ASSERT_EQ(mixed[static_cast<size_t>(token * kSize + i)], sum) << token << " at " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, ExpertCalls, testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
