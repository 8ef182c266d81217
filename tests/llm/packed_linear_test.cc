// Packed weights against the scalar reference: every format, instruction set and activation type;
// the same bits for any batch and number of threads.
#include "kernels/cpu/model/packed_linear.h"

#include <gtest/gtest.h>
#include <oneapi/tbb/task_arena.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/llm/compute/matrix.h"
#include "tests/kernels/packed_case.h"

namespace fasa {
namespace {

using namespace packed_case;

struct Size {
  int64_t outputs, inputs;
};
constexpr Size kSizes[] = {{37, 576}, {64, 1536}, {16, 40}, {1, 1}};
constexpr int64_t kRows = 17;

class PackedLinearTest
    : public ::testing::TestWithParam<std::tuple<size_t, DType, PackedActivations>> {
 protected:
  const PackedFormat& format() const { return formats()[std::get<0>(GetParam())].format; }
  DType dtype() const { return std::get<1>(GetParam()); }
  bool is_int8() const { return std::get<2>(GetParam()) == PackedActivations::kInt8; }

  PackedLinear linear(const Size& size, cpu::Target target) const {
    return PackedLinear({.format = format(),
                         .outputs = size.outputs,
                         .inputs = size.inputs,
                         .dtype = dtype(),
                         .y_stride = size.outputs,
                         .activations = std::get<2>(GetParam()),
                         .target = target});
  }
  std::vector<std::byte> rows(int64_t inputs) const {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<std::byte> x(static_cast<size_t>(kRows * inputs * dtype_bytes(dtype())));
    for (int64_t i = 0; i < kRows * inputs; ++i)
      store_element(dtype(), x.data(), i, normal(random));
    return x;
  }
  // The largest error relative to the largest result.
  double error(const Packed& packed, const Size& size, const std::vector<std::byte>& x,
               const std::vector<float>& y) const {
    double worst = 0, most = 1e-9;  // avoids a division by 0
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t output = 0; output < size.outputs; ++output) {
        double exact = 0;
        for (int64_t i = 0; i < size.inputs; ++i) {
          exact += static_cast<double>(packed.weight(output, i)) *
                   static_cast<double>(load_element(dtype(), x.data(), row * size.inputs + i));
        }
        const float given = y[static_cast<size_t>(row * size.outputs + output)];
        worst = std::max(worst, std::abs(exact - static_cast<double>(given)));
        most = std::max(most, std::abs(exact));
      }
    }
    return worst / most;
  }
};

TEST_P(PackedLinearTest, DecodeEqualsTheReference) {
  // Activations are rounded to 16 bits of the largest of 32. With bf16 activations a table is
  // rounded to bf16; int8 weights have 7 bits and a sign.
  const double bound =
      is_int8() ? 2e-2 : (dtype() == DType::kBF16 && format().has_table ? 4e-3 : 6e-5);
  for (const Size& size : kSizes) {
    Packed packed(format(), size.outputs, size.inputs);
    const std::vector<std::byte> x = rows(size.inputs);
    for (const cpu::Target target : cpu::supported_targets()) {
      std::vector<float> y(static_cast<size_t>(kRows * size.outputs), NAN);
      linear(size, target).decode(packed.data(), x.data(), kRows, size.outputs, y.data());
      EXPECT_LT(error(packed, size, x, y), bound) << cpu::target_name(target) << size.inputs;
    }
  }
}

TEST_P(PackedLinearTest, PrefillEqualsTheReference) {
  const double bound = dtype() == DType::kBF16 ? 4e-3 : 1e-5;  // weights rounded to the dtype
  for (const Size& size : kSizes) {
    Packed packed(format(), size.outputs, size.inputs);
    const std::vector<std::byte> x = rows(size.inputs);
    for (const cpu::Target target : cpu::supported_targets()) {
      std::vector<float> y(static_cast<size_t>(kRows * size.outputs), NAN);
      linear(size, target).prefill(packed.data(), x.data(), kRows, size.outputs, y.data());
      EXPECT_LT(error(packed, size, x, y), bound) << cpu::target_name(target) << size.inputs;
    }
  }
}

TEST_P(PackedLinearTest, ARowsBitsDontDependOnItsBatch) {
  const Size size = kSizes[0];
  Packed packed(format(), size.outputs, size.inputs);
  const std::vector<std::byte> x = rows(size.inputs);
  const auto row_bytes = static_cast<size_t>(size.inputs * dtype_bytes(dtype()));
  for (const cpu::Target target : cpu::supported_targets()) {
    const PackedLinear of = linear(size, target);
    for (const auto path : {&PackedLinear::decode, &PackedLinear::prefill}) {
      std::vector<float> all(static_cast<size_t>(kRows * size.outputs));
      (of.*path)(packed.data(), x.data(), kRows, size.outputs, all.data());
      for (size_t first = 0; first < kRows; ++first) {
        // 1 to 9 rows: every number that bodies take at once, and more.
        const int64_t count = std::min<int64_t>(1 + static_cast<int64_t>(first) * 4 % 9,
                                                kRows - static_cast<int64_t>(first));
        std::vector<float> some(static_cast<size_t>(count * size.outputs));
        (of.*path)(packed.data(), x.data() + first * row_bytes, count, size.outputs, some.data());
        EXPECT_EQ(std::memcmp(some.data(), all.data() + first * static_cast<size_t>(size.outputs),
                              some.size() * sizeof(float)),
                  0);
      }
    }
  }
}

TEST_P(PackedLinearTest, BitsDontDependOnThreads) {
  const Size size{700, 576};
  Packed packed(format(), size.outputs, size.inputs);
  const std::vector<std::byte> x = rows(size.inputs);
  std::vector<float> results[2];
  for (const int threads : {1, 2}) {
    oneapi::tbb::task_arena arena(threads);
    std::vector<float>& y = results[threads - 1];
    y.resize(static_cast<size_t>(kRows * size.outputs));
    arena.execute([&] {
      linear(size, cpu::active_target())
          .decode(packed.data(), x.data(), kRows, size.outputs, y.data());
    });
  }
  EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)),
            0);
}

TEST_P(PackedLinearTest, OfFirstColumnsNoOthersAreWritten) {
  const Size size{64, 96};
  Packed packed(format(), size.outputs, size.inputs);
  const std::vector<std::byte> x = rows(size.inputs);
  std::vector<float> y(static_cast<size_t>(kRows * size.outputs), -1.0f);
  linear(size, cpu::active_target()).decode(packed.data(), x.data(), kRows, 20, y.data());
  EXPECT_NE(y[19], -1.0f);
  EXPECT_EQ(y[20], -1.0f);
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedLinearTest,
                         ::testing::Combine(::testing::Range<size_t>(0, formats().size()),
                                            ::testing::Values(DType::kF32, DType::kBF16),
                                            ::testing::Values(PackedActivations::kModel,
                                                              PackedActivations::kInt8)),
                         [](const auto& tested) {
                           const bool int8 = std::get<2>(tested.param) == PackedActivations::kInt8;
                           return std::string(formats()[std::get<0>(tested.param)].name) + "_" +
                                  std::string(dtype_name(std::get<1>(tested.param))) +
                                  (int8 ? "_int8" : "");
                         });

TEST(PackedLinear, InputsInAnotherOrderMeetTheirWeights) {
  const PackedFormat format{4, 32, ScaleKind::kF16, OffsetKind::kZero, false, 8};
  constexpr int64_t kInputs = 40, kOutputs = 3;
  std::vector<int32_t> order(64, -1);
  for (int32_t input = 0; input < kInputs; ++input) {
    order[static_cast<size_t>(input % 2 * 32 + input / 2)] = input;  // even ones, then odd ones
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const PackedLinear linear({.format = format,
                               .outputs = kOutputs,
                               .inputs = kInputs,
                               .order = order,
                               .dtype = dtype,
                               .y_stride = kOutputs});
    std::vector<std::byte> weights(linear.bytes());
    std::vector<std::byte> x(kInputs * 4);
    double exact[kOutputs] = {};
    for (int64_t output = 0; output < kOutputs; ++output) {
      std::vector<uint8_t> codes(64);
      for (int64_t place = 0; place < 64; ++place) {
        codes[static_cast<size_t>(place)] = static_cast<uint8_t>((place * 7 + output) % 16);
        const int32_t input = order[static_cast<size_t>(place)];
        if (input < 0) continue;
        store_element(dtype, x.data(), input, static_cast<float>(input) - 11);
        const int zero = place < 32 ? 1 : -2;
        exact[output] += (codes[static_cast<size_t>(place)] - 8 - zero) * 0.5 * (input - 11);
      }
      const float scales[] = {0.5f, 0.5f};
      const float zeros[] = {1, -2};
      pack_row(format, linear.panel(), {codes.data(), scales, zeros, nullptr, nullptr}, output,
               weights.data());
    }
    for (const auto path : {&PackedLinear::decode, &PackedLinear::prefill}) {
      float y[kOutputs] = {};
      (linear.*path)(weights.data(), x.data(), 1, kOutputs, y);
      for (int64_t output = 0; output < kOutputs; ++output) {
        EXPECT_NEAR(static_cast<double>(y[output]), exact[output], 0.01);
      }
    }
  }
}

PackedLinear linear_of(const PackedFormat& format, int64_t outputs, int64_t inputs,
                       cpu::Target target) {
  return PackedLinear({.format = format,
                       .outputs = outputs,
                       .inputs = inputs,
                       .y_stride = outputs,
                       .target = target});
}

// A number that is not finite makes its row NaN, and no other. Zeros and subnormals give zeros.
TEST(PackedLinear, NumbersThatAreNotFiniteAreSeen) {
  constexpr int64_t kInputs = 80, kOutputs = 16, kCount = 4;
  for (const packed_case::NamedFormat& format : formats()) {
    Packed packed(format.format, kOutputs, kInputs);
    for (const cpu::Target target : cpu::supported_targets()) {
      const PackedLinear linear = linear_of(format.format, kOutputs, kInputs, target);
      std::vector<float> x(kCount * kInputs, 1e-42f);
      x[5] = NAN;
      x[kInputs + 40] = -INFINITY;
      std::fill_n(x.begin() + 3 * kInputs, kInputs, 0.0f);
      std::vector<float> y(kCount * kOutputs, 1.0f);
      linear.decode(packed.data(), x.data(), kCount, kOutputs, y.data());
      for (size_t output = 0; output < kOutputs; ++output) {
        EXPECT_TRUE(std::isnan(y[output])) << format.name;
        EXPECT_FALSE(std::isfinite(y[kOutputs + output])) << format.name;
        EXPECT_NEAR(y[2 * kOutputs + output], 0, 1e-30f) << format.name;
        EXPECT_EQ(y[3 * kOutputs + output], 0) << format.name;
      }
    }
  }
}

// 33 rows take five passes, one row takes two panels at once.
TEST(PackedLinear, ManyRowsHaveTheBitsOfOne) {
  constexpr int64_t kInputs = 1056, kOutputs = 50, kCount = 33;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(kCount * kInputs);
  for (float& value : x) value = normal(random);
  for (const packed_case::NamedFormat& format : formats()) {
    Packed packed(format.format, kOutputs, kInputs);
    for (const cpu::Target target : cpu::supported_targets()) {
      const PackedLinear linear = linear_of(format.format, kOutputs, kInputs, target);
      std::vector<float> all(kCount * kOutputs), one(kOutputs);
      linear.decode(packed.data(), x.data(), kCount, kOutputs, all.data());
      for (size_t row = 0; row < kCount; ++row) {
        linear.decode(packed.data(), x.data() + row * kInputs, 1, kOutputs, one.data());
        EXPECT_EQ(std::memcmp(one.data(), all.data() + row * kOutputs, kOutputs * 4), 0)
            << format.name << row;
      }
    }
  }
}

// Adjacent decoding sequences of a step form one run, which reads the weights once.
TEST(RowRuns, NeighboursOfOnePhaseAreOne) {
  std::vector<RowRun> runs;
  add_rows(&runs, 1, StepMode::kDecode);
  add_rows(&runs, 1, StepMode::kDecode);
  add_rows(&runs, 30, StepMode::kPrefill);
  add_rows(&runs, 12, StepMode::kPrefill);
  add_rows(&runs, 1, StepMode::kDecode);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].rows, 2);
  EXPECT_EQ(runs[1].rows, 42);
  EXPECT_EQ(runs[1].mode, StepMode::kPrefill);
  EXPECT_EQ(rows_of(runs), 45);
}

}  // namespace
}  // namespace fasa
