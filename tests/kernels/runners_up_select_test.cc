// Runners-up of the host's selects.
#include <gtest/gtest.h>

#include "kernels/cpu/kernels.h"
#include "tests/kernels/runners_up_case.h"
#include "tests/support/reference/kernels.h"

namespace fasa::runners_up_case {
namespace {

void select_on_cpu(const SelectParams& params) { cpu::run(params); }

// Fewer and more than the low-bit set, and all tokens outside the set.
TEST(RunnersUpSelect, AreInOrder) {
  for (LowBitShape shape : low_bit_case::select_shapes()) {
    for (const int32_t capacity : {1, 20, 300}) {
      if (capacity > 100) shape.select.budget = 400;
      SCOPED_TRACE(::testing::Message()
                   << slice_dtype_name(shape.select.dtype) << " low-bit " << shape.low_bit.tokens
                   << " of " << shape.lengths[0] << ", " << capacity);
      if (shape.lengths[0] < 6000)
        expect_ranked(shape, capacity, gaussian_keys(3), reference::select);
      expect_ranked(shape, capacity, gaussian_keys(3), select_on_cpu);
      shape.low_bit = {};
      expect_ranked(shape, capacity, gaussian_keys(3), select_on_cpu);
    }
  }
}

TEST(RunnersUpSelect, TiesAndRescans) {
  std::vector<SelectCase::KeyOf> keys = misleading_keys();
  keys.push_back([](int, int, int, int) { return 1.0f; });
  keys.push_back([](int, int, int t, int) { return static_cast<float>(t / 700); });
  for (const SelectCase::KeyOf& key : keys) {
    for (const int32_t capacity : {1, 90}) {
      LowBitShape shape;
      shape.select.dims = 4, shape.select.group = 2;
      shape.lengths = {5000, 1300};
      shape.low_bit.tokens = 40;
      expect_ranked(shape, capacity, key, select_on_cpu);
    }
  }
}

TEST(RunnersUpSelect, AreAsManyAsHotRowsAreWorth) {
  EXPECT_EQ(max_runners_up(8 * 32, 32), 32);
  EXPECT_EQ(max_runners_up(8 * 32 - 1, 32), 0);
  EXPECT_EQ(max_runners_up(0, 32), 0);
}

}  // namespace
}  // namespace fasa::runners_up_case
