// Decode's products with packed weights and prefill's unpacking, interpreted, against the scalar
// reference of each format.
#include "kernels/cuda/model/project_packed_inl.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/model/unpack_inl.h"
#include "tests/kernels/packed_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

using namespace packed_case;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kUntouched = -7;

// 16-byte aligned elements of x.
class Rows {
 public:
  Rows(DType dtype, int64_t rows, int64_t inputs, unsigned seed = 3)
      : dtype_(dtype), inputs_(inputs), words_(static_cast<size_t>(rows * inputs * 4 / 16 + 1)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * inputs; ++i)
      store_element(dtype, words_.data(), i, normal(random));
  }
  void set(int64_t row, int64_t input, float value) {
    store_element(dtype_, words_.data(), row * inputs_ + input, value);
  }
  double at(int64_t row, int64_t input) const {
    return load_element(dtype_, words_.data(), row * inputs_ + input);
  }
  const std::byte* row(int64_t index) const {
    return reinterpret_cast<const std::byte*>(words_.data()) +
           index * inputs_ * dtype_bytes(dtype_);
  }
  DType dtype() const { return dtype_; }

 private:
  DType dtype_;
  int64_t inputs_;
  std::vector<simt::Word16> words_;
};

struct Size {
  int64_t outputs, inputs;
};

PackedWeights weights_of(const PackedFormat& format, Packed& packed, const Size& size) {
  return {
      .format = format, .panel = packed.panel(), .inputs = size.inputs, .panels = packed.data()};
}

class PackedKernels : public ::testing::TestWithParam<SimtRun> {
 protected:
  // [rows][outputs + 3]; the last three elements of a row must not change.
  std::vector<float> project(const PackedWeights& weights, const Size& size, const Rows& x,
                             int64_t first, int64_t rows) {
    const int64_t stride = size.outputs + 3;
    std::vector<float> y(static_cast<size_t>(rows * stride), kUntouched);
    std::vector<simt::Word16> scratch(
        static_cast<size_t>(ProjectPackedParams::scratch_bytes(weights, x.dtype()) / 16));
    std::vector<simt::Word16> aligned(
        static_cast<size_t>(rows * size.inputs * dtype_bytes(x.dtype()) / 16 + 1));
    std::copy_n(x.row(first), rows * size.inputs * dtype_bytes(x.dtype()),
                reinterpret_cast<std::byte*>(aligned.data()));
    cuda::start(ProjectPackedParams{.dtype = x.dtype(),
                                    .rows = rows,
                                    .columns = size.outputs,
                                    .y_stride = stride,
                                    .weights = weights,
                                    .x = aligned.data(),
                                    .y = y.data(),
                                    .scratch = reinterpret_cast<std::byte*>(scratch.data())},
                SimtLauncher(interpreter_, 2, capability_));
    return y;
  }

  void expect_products(const PackedFormat& format, const Size& size, DType dtype, int64_t rows) {
    Packed packed(format, size.outputs, size.inputs);
    const Rows x(dtype, rows, size.inputs);
    const std::vector<float> y = project(weights_of(format, packed, size), size, x, 0, rows);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t output = 0; output < size.outputs; ++output) {
        double sum = 0, sizes = 0;
        for (int64_t i = 0; i < size.inputs; ++i) {
          const double term = static_cast<double>(packed.weight(output, i)) * x.at(row, i);
          sum += term, sizes += std::abs(term);
        }
        // Sums in f32. For weights nearly cancelled by their offsets the bound uses the magnitudes
        // of both terms.
        ASSERT_NEAR(y[static_cast<size_t>(row * (size.outputs + 3) + output)], sum,
                    2e-5 * sizes + 1e-6)
            << rows << "x" << size.inputs << " row " << row << " output " << output;
      }
      for (int64_t i = 0; i < 3; ++i) {
        ASSERT_EQ(y[static_cast<size_t>(row * (size.outputs + 3) + size.outputs + i)], kUntouched);
      }
    }
  }

  SimtInterpreter interpreter_{GetParam().order, GetParam().seed};
  int capability_ = 90;
};

TEST_P(PackedKernels, ProductsAreTheReferences) {
  const Size sizes[] = {{37, 328}, {16, 1120}, {5, 45}, {1, 1}};
  for (const NamedFormat& named : formats()) {
    SCOPED_TRACE(named.name);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Size& size : sizes) expect_products(named.format, size, dtype, 1);
      for (const int64_t rows : {2, 8, 9}) expect_products(named.format, {20, 328}, dtype, rows);
    }
  }
}

// Before 8.0, tensor cores have no bf16.
TEST_P(PackedKernels, ProductsAreTheReferencesOnOldGpus) {
  capability_ = 75;
  for (const NamedFormat& named : formats()) {
    SCOPED_TRACE(named.name);
    for (const int64_t rows : {1, 9}) {
      expect_products(named.format, {20, 328}, DType::kBF16, rows);
    }
  }
}

TEST_P(PackedKernels, ARowsBitsAreItsOwn) {
  constexpr int64_t kRows = 11;
  const Size size{20, 328};
  for (const NamedFormat& named : formats()) {
    Packed packed(named.format, size.outputs, size.inputs);
    const PackedWeights weights = weights_of(named.format, packed, size);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Rows x(dtype, kRows, size.inputs);
      const std::vector<float> all = project(weights, size, x, 0, kRows);
      for (const int64_t count : {1, 3, 5}) {
        for (int64_t first = 0; first + count <= kRows; first += 2) {
          const std::vector<float> some = project(weights, size, x, first, count);
          ASSERT_TRUE(
              std::equal(some.begin(), some.end(), all.begin() + first * (size.outputs + 3)))
              << named.name << " " << first << " of " << count;
        }
      }
    }
  }
}

// Each weight equals the reference's, rounded once.
TEST_P(PackedKernels, UnpackedWeightsAreTheReferences) {
  const Size sizes[] = {{37, 328}, {5, 45}, {1, 1}};
  for (const NamedFormat& named : formats()) {
    for (const Size& size : sizes) {
      Packed packed(named.format, size.outputs, size.inputs);
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const int64_t first = size.outputs > kPackedColumns ? kPackedColumns : 0;
        const int64_t count = size.outputs - first;
        std::vector<simt::Word16> plain(static_cast<size_t>(count * size.inputs * 4 / 16 + 1));
        cuda::start(UnpackParams{.dtype = dtype,
                                 .first = first,
                                 .columns = count,
                                 .weights = weights_of(named.format, packed, size),
                                 .plain = plain.data()},
                    SimtLauncher(interpreter_));
        Rows expected(dtype, 1, 1);
        for (int64_t i = 0; i < count * size.inputs; ++i) {
          expected.set(0, 0, packed.weight(first + i / size.inputs, i % size.inputs));
          ASSERT_EQ(static_cast<double>(load_element(dtype, plain.data(), i)), expected.at(0, 0))
              << named.name << " " << size.inputs << " at " << i;
        }
      }
    }
  }
}

TEST_P(PackedKernels, InputsInAnotherOrderMeetTheirWeights) {
  const OrderedCase ordered;
  const Size size{OrderedCase::kOutputs, OrderedCase::kInputs};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rows x(dtype, 9, size.inputs);
    for (int64_t row = 0; row < 9; ++row) {
      for (int64_t i = 0; i < size.inputs; ++i) x.set(row, i, static_cast<float>(row + i - 11));
    }
    const std::vector<float> y = project(ordered.weights(), size, x, 0, 9);
    std::vector<simt::Word16> plain(static_cast<size_t>(size.outputs * size.inputs) / 4 + 1);
    cuda::start(UnpackParams{.dtype = dtype,
                             .columns = size.outputs,
                             .weights = ordered.weights(),
                             .plain = plain.data()},
                SimtLauncher(interpreter_));
    for (int64_t output = 0; output < size.outputs; ++output) {
      for (int64_t row = 0; row < 9; ++row) {
        double sum = 0;
        for (int64_t i = 0; i < size.inputs; ++i) sum += ordered.plain[output][i] * x.at(row, i);
        EXPECT_EQ(static_cast<double>(y[static_cast<size_t>(row * (size.outputs + 3) + output)]),
                  sum);
      }
      for (int64_t i = 0; i < size.inputs; ++i) {
        EXPECT_EQ(static_cast<double>(load_element(dtype, plain.data(), output * size.inputs + i)),
                  ordered.plain[output][i]);
      }
    }
  }
}

// A NaN scale affects its own output only; zeros times it are 0; an infinite input affects its own
// row only.
TEST_P(PackedKernels, InfinitiesAndZerosStayWhereTheyAre) {
  const PackedFormat format{4, 32, ScaleKind::kBF16, OffsetKind::kNone, false, 0};
  const Size size{18, 72};
  const PackedPanel panel(format, 96);
  std::vector<simt::Word16> memory(static_cast<size_t>(2 * panel.bytes) / 16);
  const std::vector<uint8_t> codes(96, 3);
  for (int64_t output = 0; output < size.outputs; ++output) {
    std::vector<float> scales(3, output == 2 ? 0.0f : 0.5f);
    if (output == 1) scales[2] = kInfinity;  // the scale of a group that extends beyond the inputs
    pack_row(format, panel, {codes.data(), scales.data(), nullptr, nullptr, nullptr},
             output % kPackedColumns,
             reinterpret_cast<std::byte*>(memory.data()) + output / kPackedColumns * panel.bytes);
  }
  const PackedWeights weights{.format = format,
                              .panel = panel,
                              .inputs = size.inputs,
                              .panels = reinterpret_cast<const std::byte*>(memory.data())};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rows x(dtype, 3, size.inputs);
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t i = 0; i < size.inputs; ++i) x.set(row, i, 1);
    }
    x.set(1, 70, kInfinity);
    const std::vector<float> y = project(weights, size, x, 0, 3);
    const float whole = 72 * 1.5f;
    for (int64_t output = 0; output < size.outputs; ++output) {
      const float own = output == 1 ? kInfinity : output == 2 ? 0 : whole;
      EXPECT_EQ(y[static_cast<size_t>(output)], own) << output;
      EXPECT_EQ(y[static_cast<size_t>(2 * 21 + output)], own) << output;
      if (output == 2) {
        EXPECT_TRUE(std::isnan(y[static_cast<size_t>(21 + output)]));
      } else {
        EXPECT_EQ(y[static_cast<size_t>(21 + output)], kInfinity) << output;
      }
    }
  }
}

// Division by a group's size is multiplication with a reciprocal, in units of 16.
TEST(PackedReader, GroupsOfAllSizesAreFound) {
  for (const int group : {16, 32, 96, 128, 160, 4096, 14336}) {
    const PackedFormat format{4, group, ScaleKind::kF16, OffsetKind::kNone, false, 8};
    const auto reader = cuda::PackedReader<4>::of({.format = format, .panel = {}});
    for (int64_t place = 0; place < 131072; place += 8) {
      ASSERT_EQ(reader.group_of(place), place / group) << group << " at " << place;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, PackedKernels, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace fasa
