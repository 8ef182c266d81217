// The CUDA device's append under the interpreter gives the reference's bytes.
#include "kernels/cuda/append_inl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/slice_codec.h"
#include "tests/kernels/append_case.h"
#include "tests/simt/simt_case.h"

namespace fasa {
namespace {

class AppendBody : public ::testing::TestWithParam<SimtRun> {
 protected:
  void advance(RowCase& cache, const std::vector<Advance>& advances) {
    RowStep step = cache.begin(advances);
    for (int layer = 0; layer < cache.layout().layers; ++layer) {
      cache.fill(step, layer);
      cuda::start(cache.append_params(step, layer), SimtLauncher(interpreter_));
      if (cache.writes_back()) cpu::run(WriteBackParams{cache.params(step, layer)});
    }
    cache.commit(advances);
  }
  SimtInterpreter interpreter_{GetParam().order, GetParam().seed};
};

TEST_P(AppendBody, SameBytesAsReference) {
  for (RowShape shape : append_shapes()) {
    for (const bool copies : {false, true}) {
      if (copies && (shape.on_device || shape.key_dim != 80)) continue;
      shape.device_copies = copies;
      RowCase fast(shape, {5, 6}, 400);
      RowCase slow(shape, {5, 6}, 400);
      const std::vector<std::vector<Advance>> steps = {
          {{0, 100}, {1, 1}},
          {{1, 63}, {0, 28}},
          {{0, 1, StepMode::kDecode}, {1, 1, StepMode::kDecode}},
          {{1, 200}, {0, 1, StepMode::kDecode}},
          {{0, 9, StepMode::kDecode}, {1, kMaxDecoded, StepMode::kDecode}},
          {{0, 130}}};
      for (const auto& step : steps) {
        advance(fast, step);
        slow.advance(step, true);
        for (int s = 0; s < 2; ++s) {
          expect_same(fast, fast.sequence(s), slow.sequence(s), true);
          EXPECT_EQ(fast.sequence(s).copies, slow.sequence(s).copies);
        }
      }
    }
  }
}

// Rows that are in place are sealed into the same slices.
TEST_P(AppendBody, RowsInPlaceAreCoded) {
  for (const RowDType row : {RowDType::kBF16, RowDType::kInt8}) {
    RowShape shape;
    shape.row = row, shape.key_dim = 32, shape.value_dim = 34;
    RowCase first(shape, {5}, 64);
    first.advance({{0, 50}}, true);
    RowCase second(shape, {5}, 64);
    RowStep step = second.begin({{0, 50}});
    AppendParams params = second.append_params(step, 0);
    std::memcpy(second.sequence(0).row_blocks[0], first.sequence(0).row_blocks[0],
                static_cast<size_t>(second.layout().row_block_bytes()));
    params.k = params.v = {};
    cuda::start(params, SimtLauncher(interpreter_));
    second.commit({{0, 50}});
    expect_same(first, first.sequence(0), second.sequence(0), true);
  }
}

// Channels with large means, constants, infinities, NaN and both zeros.
TEST_P(AppendBody, OddChannelsAreCodedAsTheReferenceDoes) {
  for (const SliceDType slice : {SliceDType::kInt8, SliceDType::kInt4, SliceDType::kInt2}) {
    RowShape shape;
    shape.key_dim = 32, shape.value_dim = 8, shape.row = DType::kF32, shape.slice = slice;
    if (slice == SliceDType::kInt2) shape.fine = 22;
    RowCase fast(shape, {1}, 200);
    RowCase slow(shape, {1}, 200);
    const auto input = [](InputKind kind, int s, int layer, int position, int head, int dim) {
      const float small = noise(kind, s, layer, position, head, dim);
      const bool some = position % 7 == 3;
      switch (dim % 12) {
        case 0:
          return 300.0f + small;
        case 1:
          return -300.0f + small;
        case 2:
          return 1.5f;
        case 3:
          return some ? INFINITY : small;
        case 4:
          return some ? -INFINITY : small;
        case 5:
          return NAN;
        case 6:
          return some ? 1e30f : small;
        case 7:
          return small * 1e-36f;
        case 8:
          return position % 2 == 0 ? 0.0f : -0.0f;
        case 9:
          return some ? NAN : small * 100;
        default:
          return small;
      }
    };
    fast.set_input(input);
    slow.set_input(input);
    advance(fast, {{0, 150}});
    slow.advance({{0, 150}}, true);
    expect_same(fast, fast.sequence(0), slow.sequence(0), false);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, AppendBody, ::testing::ValuesIn(simt_runs()),
                         [](const auto& test) { return name_of(test.param); });

// The step from which the device starts its search is never larger than the largest that fits.
TEST(Append, DeviceFindsTheHostsSteps) {
  for (const int bits : {2, 4, 8}) {
    for (int i = 0; i < 20000; ++i) {
      const float a =
          noise(InputKind::kKey, i, bits, 0, 0, 0) * std::exp2(static_cast<float>(i % 90 - 45));
      const float b =
          a + noise(InputKind::kKey, i, bits, 1, 0, 0) * std::exp2(static_cast<float>(i % 61 - 30));
      const float lo = std::min(a, b);
      const float hi = std::max(a, b);
      ASSERT_EQ(cuda::AppendKernel::smallest_step(lo, hi, bits), smallest_scale_step(lo, hi, bits))
          << lo << " " << hi;
    }
  }
}

}  // namespace
}  // namespace fasa
