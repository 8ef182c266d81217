// The kernels of the model's own operations against their definitions, row by row: the interpreted
// CUDA bodies, and the processor's, which give the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/model/elementwise.h"
#include "kernels/cpu/model/rope.h"
#include "kernels/cpu/model/row_calls.h"
#include "kernels/cuda/model/activate_inl.h"
#include "kernels/cuda/model/heads_inl.h"
#include "kernels/cuda/model/norm_inl.h"
#include "kernels/cuda/model/project_inl.h"
#include "runtime/llm/family/model_family.h"
#include "tests/kernels/sinks_case.h"
#include "tests/simt/simt_case.h"
#include "tests/support/randoms.h"

namespace fasa {
namespace {

// Sums in another order, and in bf16 one rounding that may differ.
constexpr double kF32Bound = 2e-6;
constexpr double kBf16Bound = 1.0 / 128;

// Elements of a dtype, read back as floats.
struct Elements {
  DType dtype;
  std::vector<std::byte> bytes;

  Elements(DType type, int64_t count)
      : dtype(type), bytes(static_cast<size_t>(count * dtype_bytes(type))) {}
  Elements(DType type, const std::vector<float>& values)
      : Elements(type, static_cast<int64_t>(values.size())) {
    for (size_t i = 0; i < values.size(); ++i) {
      store_element(dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
    }
  }
  float operator[](int64_t i) const { return load_element(dtype, bytes.data(), i); }
  int64_t size() const { return static_cast<int64_t>(bytes.size()) / dtype_bytes(dtype); }
  std::byte* at(int64_t i) { return bytes.data() + i * dtype_bytes(dtype); }
};

void expect_near(const Elements& given, const Elements& expected) {
  ASSERT_EQ(given.size(), expected.size());
  const double bound = given.dtype == DType::kF32 ? kF32Bound : kBf16Bound;
  for (int64_t i = 0; i < given.size(); ++i) {
    const double size = std::max(1.0, std::abs(static_cast<double>(expected[i])));
    ASSERT_NEAR(given[i], expected[i], bound * size) << i;
  }
}
void expect_near(const std::vector<float>& given, const std::vector<float>& expected) {
  expect_near(Elements(DType::kF32, given), Elements(DType::kF32, expected));
}

class ModelKernels : public ::testing::TestWithParam<SimtRun> {
 protected:
  SimtLauncher launcher(int capability = 90) { return SimtLauncher(interpreter_, 2, capability); }
  SimtInterpreter interpreter_{GetParam().order, GetParam().seed};
};

struct NormCase {
  int64_t size;
  NormKind kind;
  AddOrder order;
  bool bias;
  DType dtype;
  bool normed_addend = false;
  float scale = 1;
  bool normed = true;
};

void expect_add_norm(const NormCase& c, const SimtLauncher& launch) {
  constexpr int64_t kTokens = 5;
  const std::vector<int32_t> chosen = {1, 3};
  const auto weight = randoms(c.size, 1), shift = randoms(c.size, 2), bias = randoms(c.size, 3);
  auto addend = randoms(kTokens * c.size, 4);
  const auto of_addend = randoms(c.size, 6);
  const float* const addend_weight = c.normed_addend ? of_addend.data() : nullptr;
  const float* const norm_weight = c.normed ? weight.data() : nullptr;
  std::vector<float> residual = randoms(kTokens * c.size, 5), expected = residual, own = residual;
  Elements out(c.dtype, 2 * c.size), expected_out = out, own_out = out;
  const float* const norm_bias = c.bias && c.kind == NormKind::kLayer ? shift.data() : nullptr;
  const float* const add_bias = c.bias ? bias.data() : nullptr;
  AddNormParams params = {.rows = 2,
                          .size = c.size,
                          .residual = residual.data(),
                          .addend = addend.data(),
                          .bias = add_bias,
                          .addend_norm = {c.kind, 1e-5f, addend_weight, nullptr},
                          .scale = c.scale,
                          .tokens = chosen.data(),
                          .order = c.order,
                          .norm = {c.kind, 1e-5f, norm_weight, norm_bias},
                          .dtype = c.dtype,
                          .out = out.bytes.data()};
  cuda::start(params, launch);
  params.residual = own.data();
  params.out = own_out.bytes.data();
  cpu::run_on_rows(params);
  const Norm norm = {c.kind, 1e-5f, norm_weight, norm_bias};
  const Joining joining = {add_bias, {c.kind, 1e-5f, addend_weight, nullptr}, c.scale};
  for (int64_t row = 0; row < 2; ++row) {
    const int64_t at = chosen[static_cast<size_t>(row)] * c.size;
    const auto add = [&] { join_row(addend.data() + at, joining, c.size, expected.data() + at); };
    if (c.order == AddOrder::kAddThenNorm) add();
    normalise(expected.data() + at, norm, c.size, c.dtype, expected_out.at(row * c.size));
    if (c.order == AddOrder::kNormThenAdd) add();
  }
  if (c.normed_addend) {
    expect_near(residual, expected);
  } else {
    EXPECT_EQ(residual, expected);
  }
  expect_near(out, expected_out);
  EXPECT_EQ(own, expected);
  EXPECT_EQ(own_out.bytes, expected_out.bytes);
}

TEST_P(ModelKernels, WhatIsAddedIsNormedAndScaled) {
  for (const int64_t size : {1, 31, 301}) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      for (const bool bias : {false, true}) {
        for (const bool normed : {false, true}) {
          NormCase c{size, kind, AddOrder::kAddThenNorm, bias, DType::kF32};
          c.normed = normed;
          c.scale = 0.25f;
          expect_add_norm(c, launcher());
          c.normed_addend = true;
          expect_add_norm(c, launcher());
        }
      }
    }
  }
}

TEST_P(ModelKernels, AddNormIsTheProcessors) {
  for (const int64_t size : {1, 31, 256, 301, 1028, 8196}) {  // all kernels; beyond registers
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      for (const AddOrder order : {AddOrder::kAddThenNorm, AddOrder::kNormThenAdd}) {
        for (const bool bias : {false, true}) {
          const DType dtype = bias ? DType::kF32 : DType::kBF16;
          expect_add_norm({size, kind, order, bias && kind == NormKind::kLayer, dtype}, launcher());
        }
      }
    }
  }
}

TEST_P(ModelKernels, NormInPlace) {
  const auto weight = randoms(77, 1);
  std::vector<float> residual = randoms(3 * 77, 2), expected = residual, own = residual;
  const Norm norm = {NormKind::kLayer, 1e-5f, weight.data(), nullptr};
  const auto in_place = [&](float* values) -> AddNormParams {
    return {.rows = 3,
            .size = 77,
            .residual = values,
            .norm = norm,
            .dtype = DType::kF32,
            .out = values};
  };
  cuda::start(in_place(residual.data()), launcher());
  cpu::run_on_rows(in_place(own.data()));
  for (int row = 0; row < 3; ++row) normalise(expected.data() + row * 77, norm, 77);
  expect_near(residual, expected);
  EXPECT_EQ(own, expected);
}

TEST_P(ModelKernels, AnglesAreTheProcessors) {
  const std::vector<float> frequencies = {1, 0.31f, 0.0123f, 1e-4f, 3e-7f};
  const std::vector<int32_t> positions = {0, 1, 77, 131071, 2000000};
  std::vector<float> cosines(25), sines(25), own_cosines(25), own_sines(25), c(25), s(25);
  AnglesParams params = {.tokens = 5,
                         .half = 5,
                         .positions = positions.data(),
                         .frequencies = frequencies.data(),
                         .factor = 1.25f,
                         .cosines = cosines.data(),
                         .sines = sines.data()};
  cuda::start(params, launcher());
  params.cosines = own_cosines.data();
  params.sines = own_sines.data();
  EXPECT_EQ(cpu::run_on_rows(params).device_bytes, 2 * 25 * sizeof(float));
  for (size_t i = 0; i < 5; ++i) {
    rope_angles(frequencies, 1.25f, positions[i], c.data() + 5 * i, s.data() + 5 * i);
  }
#ifdef FASA_EXECUTE_PTX  // CUDA's sinf and cosf are other code than the host's
  expect_near(cosines, c);
  expect_near(sines, s);
#else
  EXPECT_EQ(cosines, c);
  EXPECT_EQ(sines, s);
#endif
  EXPECT_EQ(own_cosines, c);
  EXPECT_EQ(own_sines, s);
}

struct HeadsCase {
  int dim;
  int rotary_dims;
  HeadNorm norm;
  NormKind kind;
  DType dtype;
  RotaryLayout layout = RotaryLayout::kHalf;
  float growth = 0;  // of queries
};

// Three query heads, two key heads and two value heads, in rows that are followed by other data.
void expect_heads(const HeadsCase& c, const SimtLauncher& launch) {
  constexpr int kTokens = 3, kQueries = 3, kKeys = 2, kAll = 7;
  const int64_t width = int64_t{kAll} * c.dim, stride = width + 5;
  const bool together = c.norm == HeadNorm::kTogether;
  const int64_t norm_stride = c.norm == HeadNorm::kPerHead || together ? c.dim : 0;
  const int64_t half = c.rotary_dims / 2;
  std::vector<float> x = randoms(kTokens * stride, 1);
  const auto bias = randoms(width, 2);
  const auto of_queries = randoms(kQueries * c.dim, 3), of_keys = randoms(kKeys * c.dim, 4);
  const auto cosines = randoms(kTokens * half, 5), sines = randoms(kTokens * half, 6);
  const std::vector<int32_t> positions = {0, 5, 131071};
  Elements out(c.dtype, kTokens * width), expected = out, own = out;
  const bool normed = c.norm != HeadNorm::kNone;
  Norm query_norm = {c.kind, 1e-6f, normed ? of_queries.data() : nullptr, nullptr};
  Norm key_norm = {c.kind, 1e-6f, normed ? of_keys.data() : nullptr, nullptr};
  HeadsParams params = {.tokens = kTokens,
                        .heads = kAll,
                        .query_heads = kQueries,
                        .key_heads = kKeys,
                        .dim = c.dim,
                        .rotary_dims = c.rotary_dims,
                        .rotary_layout = c.layout,
                        .x = x.data(),
                        .x_stride = stride,
                        .bias = bias.data(),
                        .query_norm = query_norm,
                        .key_norm = key_norm,
                        .norm_stride = norm_stride,
                        .norm_together = together,
                        .cosines = cosines.data(),
                        .sines = sines.data(),
                        .growth = {c.growth, 3},
                        .positions = positions.data(),
                        .dtype = c.dtype,
                        .out = out.bytes.data()};
  cuda::start(params, launch);
  params.out = own.bytes.data();
  cpu::run_on_rows(params);
  for (int token = 0; token < kTokens; ++token) {
    float* const row = x.data() + token * stride;
    for (int64_t i = 0; i < width; ++i) row[i] += bias[static_cast<size_t>(i)];
    if (together) {
      normalise(row, query_norm, kQueries * c.dim);
      normalise(row + kQueries * c.dim, key_norm, kKeys * c.dim);
    }
    for (int head = 0; head < kAll; ++head) {
      float* values = row + int64_t{head} * c.dim;
      if (head < kQueries + kKeys) {
        Norm norm = head < kQueries ? query_norm : key_norm;
        const int64_t index = head < kQueries ? head : head - kQueries;
        if (normed && !together) {
          norm.weight += index * norm_stride;
          normalise(values, norm, c.dim);
        }
        const auto rotate = c.layout == RotaryLayout::kHalf ? rope_rotate : rope_rotate_pairs;
        rotate(values, c.rotary_dims, cosines.data() + token * half, sines.data() + token * half);
      }
      for (int d = 0; head < kQueries && d < c.dim; ++d) {
        values[d] *=
            1 + c.growth *
                    std::log(1.0f + static_cast<float>(positions[static_cast<size_t>(token)] / 3));
      }
      store_row(values, c.dim, c.dtype, expected.at((token * kAll + head) * c.dim));
    }
  }
  expect_near(out, expected);
  EXPECT_EQ(own.bytes, expected.bytes);
}

TEST_P(ModelKernels, HeadsAreTheProcessors) {
  for (const int dim : {6, 64, 80}) {
    for (const int rotary : {dim, 4, 0}) {
      expect_heads({dim, rotary, HeadNorm::kNone, NormKind::kRms, DType::kF32}, launcher());
      expect_heads({dim, rotary, HeadNorm::kShared, NormKind::kRms, DType::kF32}, launcher());
      expect_heads({dim, rotary, HeadNorm::kPerHead, NormKind::kLayer, DType::kBF16}, launcher());
      expect_heads({dim, rotary, HeadNorm::kTogether, NormKind::kRms, DType::kF32}, launcher());
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        expect_heads(
            {dim, rotary, HeadNorm::kNone, NormKind::kRms, dtype, RotaryLayout::kInterleaved},
            launcher());
        expect_heads(
            {dim, rotary, HeadNorm::kNone, NormKind::kRms, dtype, RotaryLayout::kHalf, 0.4f},
            launcher());
      }
    }
  }
}

// Parts of heads, written between others that must not change.
TEST_P(ModelKernels, HeadsWithinWiderOnes) {
  constexpr int kTokens = 2, kHeads = 3, kDim = 6, kFrom = 10, kTo = 9;
  constexpr int kInput = kHeads * kFrom + 1, kOutput = kHeads * kTo + 4;
  const auto x = randoms(kTokens * kInput, 1);
  const auto cosines = randoms(kTokens * kDim / 2, 2), sines = randoms(kTokens * kDim / 2, 3);
  std::vector<float> out(kTokens * kOutput, -7.0f), expected = out, own = out;
  HeadsParams params = {.tokens = kTokens,
                        .heads = kHeads,
                        .query_heads = kHeads,
                        .dim = kDim,
                        .rotary_dims = kDim,
                        .rotary_layout = RotaryLayout::kInterleaved,
                        .x = x.data() + 4,
                        .x_stride = kInput,
                        .x_head_stride = kFrom,
                        .cosines = cosines.data(),
                        .sines = sines.data(),
                        .dtype = DType::kF32,
                        .out = out.data() + 2,
                        .out_stride = kOutput,
                        .out_head_stride = kTo};
  cuda::start(params, launcher());
  params.out = own.data() + 2;
  cpu::run_on_rows(params);
  for (int token = 0; token < kTokens; ++token) {
    for (int head = 0; head < kHeads; ++head) {
      float* const to = expected.data() + 2 + token * kOutput + head * kTo;
      std::copy_n(x.data() + 4 + token * kInput + head * kFrom, kDim, to);
      rope_rotate_pairs(to, kDim, cosines.data() + token * kDim / 2,
                        sines.data() + token * kDim / 2);
    }
  }
  expect_near(out, expected);
  EXPECT_EQ(own, expected);
}

// Alone and in blocks, against its formula in f64.
TEST(Activations, SiluOfAnyMagnitude) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float x : {0.0f, 1e-30f, 0.5f, -3.0f, 20.0f, -86.9f, -87.1f, -300.0f, 1e30f, -1e38f,
                        kInfinity, -kInfinity, std::nanf("")}) {
    for (const int64_t size : {1, 64}) {
      const std::vector<float> in(static_cast<size_t>(size), x);
      std::vector<float> out(in.size());
      activate(Activation::kSilu, in.data(), nullptr, size, DType::kF32, out.data());
      const double expected = double{x} / (1 + std::exp(-double{x}));
      for (const float of : out) {
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(of)) << x;
        } else if (std::isinf(expected)) {
          EXPECT_EQ(of, expected) << x;
        } else {
          EXPECT_NEAR(of, expected, 1e-30 + 3e-7 * std::abs(expected)) << x;
        }
      }
    }
  }
}

TEST_P(ModelKernels, ActivationsAreTheProcessors) {
  constexpr int64_t kTokens = 3;
  for (const Activation f : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
    for (const bool gated : {true, false}) {
      for (const int64_t size : {1, 300}) {
        const int64_t width = gated ? 2 * size : size;
        const auto x = randoms(kTokens * width, 1), bias = randoms(width, 2);
        Elements out(DType::kBF16, kTokens * size), expected = out, own = out;
        const float* const added = size > 1 ? bias.data() : nullptr;
        ActivateParams params = {.tokens = kTokens,
                                 .size = size,
                                 .function = f,
                                 .gated = gated,
                                 .x = x.data(),
                                 .bias = added,
                                 .dtype = DType::kBF16,
                                 .out = out.bytes.data()};
        cuda::start(params, launcher());
        params.out = own.bytes.data();
        cpu::run_on_rows(params);
        for (int64_t token = 0; token < kTokens; ++token) {
          (gated ? activate_gate : activate)(f, x.data() + token * width, added, size, DType::kBF16,
                                             expected.at(token * size));
        }
        EXPECT_EQ(out.bytes, expected.bytes);
        EXPECT_EQ(own.bytes, expected.bytes);
      }
    }
  }
  std::vector<float> logits = randoms(3 * 300, 3), expected = logits, own = logits;
  const auto bias = randoms(300, 4);
  AddBiasParams params = {.rows = 3, .size = 300, .bias = bias.data(), .x = logits.data()};
  cuda::start(params, launcher());
  params.x = own.data();
  cpu::run_on_rows(params);
  for (int row = 0; row < 3; ++row) add_bias(bias.data(), 300, expected.data() + row * 300);
  EXPECT_EQ(logits, expected);
  EXPECT_EQ(own, expected);
}

TEST_P(ModelKernels, SinksTakeTheirShare) {
  sinks_case::expect_their_share(
      [&](const TakeSinksParams& params) { cuda::start(params, launcher()); });
  sinks_case::expect_their_share([](const TakeSinksParams& params) { cpu::run_on_rows(params); });
}

struct ProjectCase {
  DType dtype;
  int64_t rows, inputs, columns;
  int capability = 90;
};

// The whole y; the elements after each row must not change.
std::vector<float> project(const ProjectCase& c, const Elements& x, const Elements& weights,
                           const SimtLauncher& launch) {
  const int64_t stride = c.columns + 3;
  std::vector<float> y(static_cast<size_t>(c.rows * stride), -7.0f);
  cuda::start(ProjectParams{.dtype = c.dtype,
                            .rows = c.rows,
                            .inputs = c.inputs,
                            .columns = c.columns,
                            .y_stride = stride,
                            .x = x.bytes.data(),
                            .weights = weights.bytes.data(),
                            .y = y.data()},
              launch);
  return y;
}

TEST_P(ModelKernels, ProjectionsAreSumsOfProducts) {
  const ProjectCase cases[] = {{DType::kF32, 1, 1200, 9, 90},   {DType::kF32, 11, 100, 20, 90},
                               {DType::kF32, 3, 7, 5, 90},      {DType::kBF16, 1, 2100, 9, 90},
                               {DType::kBF16, 3, 2048, 10, 90}, {DType::kBF16, 16, 72, 30, 90},
                               {DType::kBF16, 5, 33, 3, 90},    {DType::kBF16, 40, 72, 150, 90},
                               {DType::kBF16, 131, 40, 20, 90}, {DType::kBF16, 40, 9, 20, 90},
                               {DType::kBF16, 40, 72, 20, 75}};
  for (const ProjectCase& c : cases) {
    const Elements x(c.dtype, randoms(c.rows * c.inputs, 1));
    const Elements weights(c.dtype, randoms(c.columns * c.inputs, 2));
    const std::vector<float> y = project(c, x, weights, launcher(c.capability));
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t column = 0; column < c.columns + 3; ++column) {
        double sum = column < c.columns ? 0 : -7;
        for (int64_t i = 0; column < c.columns && i < c.inputs; ++i) {
          sum += static_cast<double>(x[row * c.inputs + i]) *
                 static_cast<double>(weights[column * c.inputs + i]);
        }
        // f32 sums of terms up to 4.
        ASSERT_NEAR(y[static_cast<size_t>(row * (c.columns + 3) + column)], sum,
                    1e-6 * static_cast<double>(c.inputs))
            << c.rows << "x" << c.inputs << "x" << c.columns << " at " << row << ", " << column;
      }
    }
  }
}

// Rows of a decode step have the bits that each has alone, however many there are.
TEST_P(ModelKernels, ProjectionsOfRowsApartAreThoseOfEachAlone) {
  constexpr int64_t kInputs = 72, kColumns = 21;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Elements weights(dtype, randoms(kColumns * kInputs, 2));
    for (const int64_t rows : {2, 5, 15, 16, 17, 33}) {
      Elements x(dtype, randoms(rows * kInputs, 1));
      const auto product = [&](int64_t first, int64_t count) {
        std::vector<float> y(static_cast<size_t>(count * kColumns));
        cuda::start(ProjectParams{.dtype = dtype,
                                  .rows = count,
                                  .inputs = kInputs,
                                  .columns = kColumns,
                                  .y_stride = kColumns,
                                  .x = x.at(first * kInputs),
                                  .weights = weights.bytes.data(),
                                  .y = y.data(),
                                  .apart = true},
                    launcher());
        return y;
      };
      std::vector<float> each;
      for (int64_t row = 0; row < rows; ++row) {
        const std::vector<float> alone = product(row, 1);
        each.insert(each.end(), alone.begin(), alone.end());
      }
      EXPECT_EQ(product(0, rows), each) << rows;
    }
  }
}

struct BatchCase {
  DType dtype;
  int64_t rows, inputs, columns;
  int64_t gap;  // elements between the matrices
  int capability = 90;
};

// Heads with their own matrices, x and y [rows, heads, ...]: each head as alone.
TEST_P(ModelKernels, BatchesAreTheirProjections) {
  constexpr int64_t kHeads = 3;
  const BatchCase cases[] = {{DType::kF32, 2, 100, 9, 12},      {DType::kF32, 9, 7, 5, 1},
                             {DType::kBF16, 1, 520, 10, 16},    {DType::kBF16, 4, 72, 12, 3},
                             {DType::kBF16, 40, 72, 150, 24},   {DType::kBF16, 40, 72, 20, 4},
                             {DType::kBF16, 130, 40, 20, 8, 75}};
  for (const BatchCase& c : cases) {
    const int64_t matrix = c.inputs * c.columns;
    const Elements x(c.dtype, randoms(c.rows * kHeads * c.inputs, 1));
    const Elements weights(c.dtype, randoms(kHeads * (matrix + c.gap), 2));
    std::vector<float> y(static_cast<size_t>(c.rows * kHeads * c.columns));
    cuda::start(ProjectParams{.dtype = c.dtype,
                              .rows = c.rows,
                              .inputs = c.inputs,
                              .columns = c.columns,
                              .y_stride = kHeads * c.columns,
                              .x_stride = kHeads * c.inputs,
                              .batch = kHeads,
                              .x_step = c.inputs,
                              .weights_step = matrix + c.gap,
                              .y_step = c.columns,
                              .x = x.bytes.data(),
                              .weights = weights.bytes.data(),
                              .y = y.data()},
                launcher(c.capability));
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t at = 0; at < kHeads * c.columns; ++at) {
        const int64_t head = at / c.columns, column = at % c.columns;
        double sum = 0;
        for (int64_t i = 0; i < c.inputs; ++i) {
          const int64_t weight = head * (matrix + c.gap) + column * c.inputs + i;
          sum += static_cast<double>(x[(row * kHeads + head) * c.inputs + i]) *
                 static_cast<double>(weights[weight]);
        }
        ASSERT_NEAR(y[static_cast<size_t>(row * kHeads * c.columns + at)], sum,
                    1e-6 * static_cast<double>(c.inputs))
            << c.rows << "x" << c.inputs << "x" << c.columns << " at " << row << ", " << at;
      }
    }
  }
}

// A token's bits do not depend on the other tokens of a small step.
TEST_P(ModelKernels, ARowsBitsAreItsOwn) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Elements x(dtype, randoms(7 * 264, 1)), weights(dtype, randoms(12 * 264, 2));
    const std::vector<float> all = project({dtype, 7, 264, 12, 90}, x, weights, launcher());
    for (int64_t row = 0; row < 7; ++row) {
      Elements one(dtype, 264);
      std::copy_n(x.bytes.data() + row * 264 * dtype_bytes(dtype), one.bytes.size(),
                  one.bytes.data());
      const std::vector<float> alone = project({dtype, 1, 264, 12, 90}, one, weights, launcher());
      EXPECT_TRUE(std::equal(alone.begin(), alone.begin() + 12, all.begin() + row * 15)) << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, ModelKernels, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
