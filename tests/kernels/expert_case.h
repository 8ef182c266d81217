// Pairs of tokens and experts, for tests of the kernels that work on them: each pair must give the
// result that it gives alone. Interpreted and on a GPU. `run` takes a call's parameters and returns
// when the kernel has finished.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cuda/simt.h"
#include "kernels/expert_params.h"
#include "runtime/base/dtype.h"
#include "tests/kernels/packed_case.h"
#include "tests/support/randoms.h"

namespace fasa::expert_case {

inline constexpr float kUntouched = -7;

// Elements of a dtype, beginning at a whole word.
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

// The routing tables that the device computes from the choices, in its own memory.
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

// For each token `each` experts, ascending; never the last expert, unless it is the only one.
inline std::vector<int32_t> draw(int64_t tokens, int each, int count, unsigned seed) {
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

template <typename Run>
Pairs arranged(const Run& run, int64_t tokens, int each, int count, unsigned seed = 5) {
  Pairs pairs(draw(tokens, each, count, seed), each, count);
  run(ArrangeExpertsParams{.chosen = pairs.chosen.data(), .pairs = pairs.view});
  return pairs;
}

template <typename Run>
void expect_arranged(const Run& run) {
  struct Case {
    int64_t tokens;
    int each, count;
  };
  for (const Case& c : {Case{1, 1, 1}, {1, 8, 128}, {3, 2, 4}, {150, 4, 9}, {300, 1, 2}}) {
    const Pairs pairs = arranged(run, c.tokens, c.each, c.count);
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

inline const ProductCase kProductCases[] = {
    {DType::kF32, 1, 100, 9, 3, 8},    {DType::kF32, 7, 33, 5, 2, 3},
    {DType::kBF16, 1, 264, 10, 8, 16}, {DType::kBF16, 9, 40, 12, 2, 2},
    {DType::kBF16, 40, 72, 30, 2, 5},  {DType::kBF16, 150, 40, 20, 1, 2},
    {DType::kBF16, 40, 9, 6, 2, 5},    {DType::kBF16, 20, 40, 8, 2, 4, 75},
};

// Executes `run` on a device of the case's compute capability.
template <typename Run>
void expect_products(const Run& run, const ProductCase& c) {
  const Pairs pairs = arranged(run, c.tokens, c.each, c.count);
  const int64_t matrix = c.inputs * c.columns, step = matrix + 8;
  const Elements weights(c.dtype, randoms(c.count * step, 2));
  for (const PairInput input : {PairInput::kToken, PairInput::kPair}) {
    const Elements x(c.dtype, randoms(pairs.view.pairs() * c.inputs, 1));
    // All experts, then all but the first and the last.
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
      run(ProjectExpertsParams{.product = product,
                               .pairs = pairs.view,
                               .input = input,
                               .first_expert = left_out,
                               .experts = c.count - 2 * left_out});
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

// Packed matrices of one format in one buffer, each with its own order of inputs.
struct PackedExperts {
  static constexpr int64_t kPanels = 2;  // per expert
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

// A pair gives the bits that its row gives alone, whatever the batch.
template <typename Run>
void expect_packed_products(const Run& run) {
  struct Case {
    int64_t tokens, inputs;
    int each, count;
    bool ordered;
    DType dtype = DType::kBF16;
  };
  const Case cases[] = {{1, 72, 2, 4, false},
                        {1, 45, 2, 4, false},
                        {1, 45, 2, 4, false, DType::kF32},
                        {6, 64, 3, 4, false, DType::kF32},
                        {6, 45, 3, 4, false, DType::kF32},
                        {1, 64, 2, 3, true},
                        {9, 40, 2, 3, true}};
  for (const packed_case::NamedFormat& named : packed_case::formats()) {
    for (const Case& c : cases) {
      const PackedExperts experts(named.format, c.count, c.inputs, c.ordered);
      const Pairs pairs = arranged(run, c.tokens, c.each, c.count);
      const DType dtype = c.dtype;
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
        run(ProjectPackedExpertsParams{
            .product = project(experts.weights, x.words.data(), pairs.view.pairs(), y.data()),
            .panels_step = experts.panels_step(),
            .order_step = experts.order_step(),
            .pairs = pairs.view,
            .input = input});
        for (size_t pair = 0; pair < pairs.experts.size(); ++pair) {
          const auto row = input == PairInput::kToken ? pairs.rows[pair] : static_cast<int>(pair);
          std::vector<float> values(static_cast<size_t>(c.inputs));
          for (size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<float>(x[row * c.inputs + static_cast<int64_t>(i)]);
          }
          const Elements one(dtype, values);
          std::vector<float> alone(static_cast<size_t>(stride), kUntouched);
          run(project(experts.of(pairs.experts[pair]), one.words.data(), 1, alone.data()));
          ASSERT_TRUE(std::equal(alone.begin(), alone.end(),
                                 y.begin() + static_cast<int64_t>(pair) * stride))
              << named.name << " " << c.inputs << " pair " << pair;
        }
      }
    }
  }
}

template <typename Run>
void expect_mixed(const Run& run) {
  constexpr int64_t kTokens = 6, kSize = 300;
  constexpr int kEach = 3, kCount = 5;
  const Pairs pairs = arranged(run, kTokens, kEach, kCount);
  const auto results = randoms(pairs.view.pairs() * kSize, 1);
  const auto bias = randoms(kCount * (kSize + 4), 2), weights = randoms(kTokens * kEach, 3);
  for (const bool biased : {false, true}) {
    std::vector<float> mixed(kTokens * kSize, kUntouched);
    run(MixExpertsParams{.pairs = pairs.view,
                         .size = kSize,
                         .weights = weights.data(),
                         .results = results.data(),
                         .bias = biased ? bias.data() : nullptr,
                         .bias_step = kSize + 4,
                         .mixed = mixed.data()});
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

}  // namespace fasa::expert_case
