// Packed weights on a GPU, with the test cases of the CPU kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "offload/cuda/cuda_calls.h"
#include "tests/kernels/packed_case.h"
#include "tests/support/gpu.h"

namespace fasa {
namespace {

using namespace packed_case;

template <typename Params>
void run(const Params& params) {
  cuda::enqueue(params, StreamView{DeviceKind::kCuda, nullptr});
  ASSERT_EQ(cuda_platform().calls->synchronize_stream(nullptr), cuda_status::kSuccess);
}

// A copy at a multiple of 64 bytes, as the kernels require.
class Aligned {
 public:
  explicit Aligned(int64_t bytes) : memory_(static_cast<size_t>(bytes) + 64) {}
  std::byte* data() {
    return memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64;
  }

 private:
  std::vector<std::byte> memory_;
};

struct Shape {
  DType dtype;
  int64_t rows, outputs, inputs;
};

void expect_products(const PackedFormat& format, const Shape& shape) {
  Packed packed(format, shape.outputs, shape.inputs);
  const PackedWeights weights{
      .format = format, .panel = packed.panel(), .inputs = shape.inputs, .panels = packed.data()};
  Aligned x(shape.rows * shape.inputs * 4), plain(shape.outputs * shape.inputs * 4);
  Aligned scratch(ProjectPackedParams::scratch_bytes(weights, shape.dtype));
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < shape.rows * shape.inputs; ++i) {
    store_element(shape.dtype, x.data(), i, normal(random));
  }
  std::vector<float> y(static_cast<size_t>(shape.rows * shape.outputs));
  run(ProjectPackedParams{.dtype = shape.dtype,
                          .rows = shape.rows,
                          .columns = shape.outputs,
                          .y_stride = shape.outputs,
                          .weights = weights,
                          .x = x.data(),
                          .y = y.data(),
                          .scratch = scratch.data()});
  run(UnpackParams{
      .dtype = shape.dtype, .columns = shape.outputs, .weights = weights, .plain = plain.data()});
  std::byte rounded[4];
  for (int64_t output = 0; output < shape.outputs; ++output) {
    for (int64_t i = 0; i < shape.inputs; ++i) {
      store_element(shape.dtype, rounded, 0, packed.weight(output, i));
      ASSERT_EQ(load_element(shape.dtype, plain.data(), output * shape.inputs + i),
                load_element(shape.dtype, rounded, 0))
          << output << ", " << i;
    }
    for (int64_t row = 0; row < shape.rows; ++row) {
      double sum = 0, sizes = 0;
      for (int64_t i = 0; i < shape.inputs; ++i) {
        const double term =
            static_cast<double>(packed.weight(output, i)) *
            static_cast<double>(load_element(shape.dtype, x.data(), row * shape.inputs + i));
        sum += term, sizes += std::abs(term);
      }
      ASSERT_NEAR(y[static_cast<size_t>(row * shape.outputs + output)], sum, 2e-5 * sizes + 1e-6)
          << row << ", " << output;
    }
  }
}

TEST(GpuPackedKernels, SmallProjections) {
  FASA_NEEDS_GPU();
  for (const NamedFormat& named : formats()) {
    SCOPED_TRACE(named.name);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      expect_products(named.format, {dtype, 1, 37, 1120});
      expect_products(named.format, {dtype, 3, 20, 328});
      expect_products(named.format, {dtype, 9, 20, 45});
    }
  }
}

TEST(GpuPackedKernels, SmallUnpackIntoOrder) {
  FASA_NEEDS_GPU();
  const OrderedCase ordered;
  constexpr int64_t kCount = OrderedCase::kOutputs * OrderedCase::kInputs;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Aligned plain(kCount * 4);
    run(UnpackParams{.dtype = dtype,
                     .columns = OrderedCase::kOutputs,
                     .weights = ordered.weights(),
                     .plain = plain.data()});
    for (int64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(static_cast<double>(load_element(dtype, plain.data(), i)),
                ordered.plain[i / OrderedCase::kInputs][i % OrderedCase::kInputs]);
    }
  }
}

}  // namespace
}  // namespace fasa
