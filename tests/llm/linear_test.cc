// Projections: correct, and the same bits for any number of rows and threads.
#include "kernels/cpu/model/linear.h"

#include <gtest/gtest.h>
#include <oneapi/tbb/task_arena.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/model/cpu_isa.h"
#include "kernels/cpu/model/loop_panel.h"
#include "kernels/cpu/model/panel_kernel.h"

namespace fasa {
namespace {

struct Problem {
  Problem(DType dtype_in, int64_t outputs, int64_t inputs, int64_t rows_in)
      : dtype(dtype_in), linear(dtype, outputs, inputs), rows(rows_in) {
    std::mt19937 random(static_cast<unsigned>(outputs * 31 + inputs));
    std::normal_distribution<float> normal;
    plain.resize(static_cast<size_t>(outputs * inputs * dtype_bytes(dtype)));
    x.resize(static_cast<size_t>(rows * inputs * dtype_bytes(dtype)));
    for (int64_t i = 0; i < outputs * inputs; ++i) {
      store_element(dtype, plain.data(), i, normal(random));
    }
    for (int64_t i = 0; i < rows * inputs; ++i) store_element(dtype, x.data(), i, normal(random));
    packed.resize(linear.bytes() + 64);
    for (int64_t panel = 0; panel < linear.panels(); ++panel) {
      linear.pack(panel, plain.data() + linear.first_column(panel) * inputs * dtype_bytes(dtype),
                  weights() + linear.panel_offset(panel));
    }
  }
  std::byte* weights() {
    const auto address = reinterpret_cast<uintptr_t>(packed.data());
    return packed.data() + (64 - address % 64) % 64;
  }
  const std::byte* row(int64_t index) const {
    return x.data() + index * linear.inputs() * dtype_bytes(dtype);
  }
  std::vector<float> apply(int64_t first, int64_t count) {
    std::vector<float> y(static_cast<size_t>(count * linear.outputs()), NAN);
    linear.apply(weights(), row(first), count, y.data());
    return y;
  }
  double exact(int64_t row_index, int64_t column) const {
    double sum = 0;
    for (int64_t i = 0; i < linear.inputs(); ++i) {
      sum += static_cast<double>(load_element(dtype, row(row_index), i)) *
             static_cast<double>(load_element(dtype, plain.data(), column * linear.inputs() + i));
    }
    return sum;
  }

  DType dtype;
  Linear linear;
  int64_t rows;
  std::vector<std::byte> plain, x, packed;
};

struct Size {
  int64_t outputs, inputs;
};

class LinearTest : public ::testing::TestWithParam<std::tuple<DType, Size>> {
 protected:
  Problem problem(int64_t rows) const {
    const auto [dtype, size] = GetParam();
    return Problem(dtype, size.outputs, size.inputs, rows);
  }
};

TEST_P(LinearTest, EqualsTheExactProductWithinRounding) {
  Problem p = problem(3);
  const std::vector<float> y = p.apply(0, 3);
  // Rounding of f32 sums: about sqrt(inputs) ulps of values of size sqrt(inputs).
  const double bound = 1e-6 * static_cast<double>(p.linear.inputs()) + 1e-6;
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t column = 0; column < p.linear.outputs(); ++column) {
      EXPECT_NEAR(y[static_cast<size_t>(row * p.linear.outputs() + column)], p.exact(row, column),
                  bound);
    }
  }
}

TEST_P(LinearTest, BitsOfARowDontDependOnHowManyThereAre) {
  constexpr int64_t kRows = 131;
  Problem p = problem(kRows);
  const std::vector<float> all = p.apply(0, kRows);
  const auto outputs = static_cast<size_t>(p.linear.outputs());
  for (const int64_t count : {1, 2, 3, 7, 16, 17, 64, 100}) {
    for (const int64_t first : {int64_t{0}, int64_t{5}, kRows - count}) {
      const std::vector<float> some = p.apply(first, count);
      EXPECT_EQ(std::memcmp(some.data(), all.data() + static_cast<size_t>(first) * outputs,
                            some.size() * sizeof(float)),
                0)
          << count << " rows from " << first;
    }
  }
}

TEST_P(LinearTest, BitsDontDependOnThreads) {
  Problem p = problem(40);
  std::vector<float> results[2];
  for (const int threads : {1, 2}) {
    oneapi::tbb::task_arena arena(threads);
    arena.execute([&] { results[threads - 1] = p.apply(0, 40); });
  }
  EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)),
            0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearTest,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16),
                                            ::testing::Values(Size{1, 1}, Size{5, 3}, Size{64, 32},
                                                              Size{300, 257}, Size{513, 64},
                                                              Size{70, 1030})));

// A wider matrix uses the same kernel.
TEST(PanelKernelTest, IsTheSameForPanelsOfWiderMatrices) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const PanelShape alone{dtype, 256, 256, 256};
    const PanelShape part{dtype, 256, 256, 1024};
    EXPECT_STREQ(PanelKernel::get(part).name(), PanelKernel::get(alone).name());
  }
}

TEST(LoopPanelTest, EqualsTheExactProductAndKeepsInfinities) {
  const PanelShape shape{DType::kF32, 19, 3, 3};
  const LoopPanel panel(shape);
  std::vector<float> weights(19 * 3, 0.5f), x(19 * 2, 2.0f), y(6);
  x[19] = INFINITY;
  panel.run(2, x.data(), weights.data(), y.data());
  EXPECT_EQ(y[0], 19.0f);
  EXPECT_EQ(y[2], 19.0f);
  EXPECT_EQ(y[3], INFINITY);
}

}  // namespace
}  // namespace fasa
