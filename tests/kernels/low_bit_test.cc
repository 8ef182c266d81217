// The low-bit set: the select that writes it and the attention to it by codes, on every target of
// this processor, against the f64 reference and bit for bit equal however the work is split.
#include <gtest/gtest.h>
#include <oneapi/tbb/task_arena.h>

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/low_bit_case.h"
#include "tests/support/reference/kernels.h"

namespace fasa {
namespace {

using namespace attend_case;
using namespace low_bit_case;

void select_on_cpu(const SelectParams& params) { cpu::run(params); }

TEST(LowBitSelect, IsTheNextBest) {
  for (const LowBitShape& shape : select_shapes()) {
    SCOPED_TRACE(::testing::Message() << slice_dtype_name(shape.select.dtype) << " low-bit "
                                      << shape.low_bit.tokens << " of " << shape.lengths[0]);
    expect_next_best(shape, gaussian_keys(3), reference::select);
    expect_next_best(shape, gaussian_keys(3), select_on_cpu);
  }
}

// Equal rows, misleading samples and unordered keys: inputs that need a rescan.
TEST(LowBitSelect, TiesAndRescans) {
  std::vector<SelectCase::KeyOf> keys = misleading_keys();
  keys.push_back([](int, int, int, int) { return 1.0f; });
  keys.push_back([](int, int, int t, int) { return static_cast<float>(t / 700); });
  keys.push_back([](int, int, int, int) { return 0.0f; });
  for (const SelectCase::KeyOf& key : keys) {
    for (const int low_bit : {1, 40, 3000}) {
      LowBitShape shape;
      shape.select.dims = 4, shape.select.group = 2;
      shape.lengths = {5000, 1300};
      shape.low_bit.tokens = low_bit;
      expect_next_best(shape, key, select_on_cpu);
    }
  }
}

TEST(LowBitSelect, ScoresThatAreNoNumbers) {
  LowBitShape shape;
  shape.select.dtype = SliceDType::kBF16;
  shape.lengths = {900};
  SelectCase cache(shape.select, shape.lengths, odd_keys(), gaussian_queries(2));
  const Selected selected = select_low_bit(cache, {.tokens = 900, .share = 0}, select_on_cpu);
  EXPECT_EQ(selected.low_bit[0].size(), 900u - 32u);
  for (const float score : selected.scores[0]) EXPECT_FALSE(std::isnan(score));
}

TEST(LowBitSelect, ThreadsDoNotMatter) {
  LowBitShape shape;
  shape.select.kv_heads = 2, shape.select.group = 3;
  SelectCase cache(shape.select, {20000, 900}, gaussian_keys(6), gaussian_queries(6));
  Selected one, two;
  const TokenBudget low_bit{.tokens = 500, .share = 0};
  tbb::task_arena(1).execute([&] { one = select_low_bit(cache, low_bit, select_on_cpu); });
  tbb::task_arena(2).execute([&] { two = select_low_bit(cache, low_bit, select_on_cpu); });
  EXPECT_TRUE(one == two);
}

// The samples miss the maxima, so heads are rescanned, in one part per range.
TEST(LowBitSelect, ThreadsDoNotMatterToRescans) {
  for (const SelectCase::KeyOf& key : misleading_keys()) {
    LowBitShape shape;
    shape.select.kv_heads = 2, shape.select.dims = 4, shape.select.group = 2;
    SelectCase cache(shape.select, {60000}, key, gaussian_queries(7));
    const TokenBudget low_bit{.tokens = 900, .share = 0};
    Selected one, four;
    tbb::task_arena(1).execute([&] { one = select_low_bit(cache, low_bit, select_on_cpu); });
    tbb::task_arena(4).execute([&] { four = select_low_bit(cache, low_bit, select_on_cpu); });
    EXPECT_TRUE(one == four);
  }
}

// Predictions have no low-bit set.
TEST(LowBitSelect, PredictionsHaveNone) {
  LowBitShape shape;
  shape.select.ahead = 1;
  SelectCase cache(shape.select, {900}, gaussian_keys(6), gaussian_queries(6));
  EXPECT_TRUE(select_low_bit(cache, shape.low_bit, select_on_cpu).low_bit[0].empty());
}

class LowBitAttend : public ::testing::TestWithParam<cpu::Target> {
 protected:
  // A set of every ninth token, and a low-bit set of `count` tokens between them, up to the last
  // pages.
  Cut cut(int length, int count) const {
    Cut made;
    made.run = [](const AttendParams& params) { cpu::attend_on(GetParam(), params); };
    made.set.emplace();
    for (int position = 0; position < length; position += 9) made.set->push_back(position);
    for (int i = 0; i < count; ++i) {
      const int position = static_cast<int>(int64_t{i} * (length - 1) / count) / 9 * 9 + 1 + i % 7;
      if (position < length && (made.low_bit.empty() || position > made.low_bit.back())) {
        made.low_bit.push_back(position);
      }
    }
    return made;
  }
};

TEST_P(LowBitAttend, SizesOfTheLowBitSet) {
  RowShape shape;
  shape.values = SliceDType::kInt2;
  const Decode decode(shape, {700, 690});
  for (const int count : {1, 31, 32, 33, 65, 400}) {
    SCOPED_TRACE(count);
    expect_all_cuts_equal(decode, cut(690, count));
  }
}

TEST_P(LowBitAttend, Shapes) {
  for (const SliceDType values : {SliceDType::kInt2, SliceDType::kInt4, SliceDType::kInt8}) {
    for (const int group : {1, 3, 4, 7}) {
      for (const int value_dim : {2, 33, 64, 70, 128}) {
        SCOPED_TRACE(::testing::Message()
                     << slice_dtype_name(values) << " x " << group << " x " << value_dim);
        RowShape shape;
        shape.values = values, shape.group = group, shape.value_dim = value_dim, shape.key_dim = 16;
        const Decode decode(shape, {200});
        expect_all_cuts_equal(decode, cut(200, 50), {0, 32});
      }
    }
  }
}

TEST_P(LowBitAttend, ScoresOfMinusInfinityHaveNoWeight) {
  RowShape shape;
  shape.values = SliceDType::kInt4;
  const Decode decode(shape, {500});
  Cut none = cut(500, 60);
  Cut without = none;
  without.low_bit.clear();
  none.low_bit_score = [](int, int) { return -INFINITY; };
  expect_all_cuts_equal(decode, none, {0});
  EXPECT_TRUE(attention(decode.cache, decode.step, none) ==
              attention(decode.cache, decode.step, without));
  Cut some = none;
  some.low_bit_score = [](int, int i) {
    return i % 3 == 0 ? -INFINITY : static_cast<float>(i % 5);
  };
  expect_all_cuts_equal(decode, some, {0});
}

INSTANTIATE_TEST_SUITE_P(Targets, LowBitAttend, ::testing::ValuesIn(cpu::supported_targets()),
                         [](const auto& test) { return std::string(target_name(test.param)); });

}  // namespace
}  // namespace fasa
