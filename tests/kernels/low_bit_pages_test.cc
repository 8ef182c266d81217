// A low-bit set of all other tokens, by page: the scores that a select writes and the attention to
// pages of codes, on every target of this processor, against the f64 reference and bit for bit
// equal however the work is split.
#include <gtest/gtest.h>
#include <oneapi/tbb/task_arena.h>

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/low_bit_pages_case.h"
#include "tests/support/reference/kernels.h"

namespace fasa {
namespace {

using namespace attend_case;
using namespace low_bit_case;

void select_on_cpu(const SelectParams& params) { cpu::run(params); }

TEST(LowBitPagesSelect, ScoresOfAllOthers) {
  for (const LowBitShape& shape : select_shapes()) {
    SCOPED_TRACE(::testing::Message() << slice_dtype_name(shape.select.dtype) << " of "
                                      << shape.lengths[0] << ", group " << shape.select.group);
    expect_all_others(shape, gaussian_keys(3), reference::select);
    expect_all_others(shape, gaussian_keys(3), select_on_cpu);
  }
}

// Samples that mislead, so that heads are rescanned, and scores beyond the codes.
TEST(LowBitPagesSelect, RescansAndFarScores) {
  std::vector<SelectCase::KeyOf> keys = misleading_keys();
  keys.push_back([](int, int, int t, int) { return t % 64 == 5 ? 900.0f : 0.0f; });
  for (const SelectCase::KeyOf& key : keys) {
    LowBitShape shape;
    shape.select.dims = 4, shape.select.group = 2;
    shape.lengths = {5000, 1300};
    expect_all_others(shape, key, select_on_cpu);
  }
}

TEST(LowBitPagesSelect, ScoresThatAreNoNumbers) {
  LowBitShape shape;
  shape.select.dtype = SliceDType::kBF16;
  SelectCase cache(shape.select, {900}, odd_keys(), gaussian_queries(2));
  const SelectedPages selected = select_pages(cache, 1, select_on_cpu);
  EXPECT_EQ(selected.scores[50], kNoScoreCode);
  for (int page = 0; page < selected.counts[0]; ++page) {
    EXPECT_FALSE(std::isnan(selected.maxima[static_cast<size_t>(page)])) << page;
  }
}

TEST(LowBitPagesSelect, ThreadsDoNotMatter) {
  std::vector<SelectCase::KeyOf> keys = misleading_keys();
  keys.push_back(gaussian_keys(6));
  for (const SelectCase::KeyOf& key : keys) {
    SelectShape shape;
    shape.kv_heads = 2, shape.dims = 4, shape.group = 3;
    SelectCase cache(shape, {20000, 900}, key, gaussian_queries(6));
    SelectedPages one, four;
    tbb::task_arena(1).execute([&] { one = select_pages(cache, 1, select_on_cpu); });
    tbb::task_arena(4).execute([&] { four = select_pages(cache, 1, select_on_cpu); });
    EXPECT_TRUE(one == four);
  }
}

// Weights have 8 bits: the error is about 1 % of the values' spread where one token of one page
// dominates (low_bit_rounding_inl.h).
constexpr float kPagesTolerance = 0.02f;

class LowBitPagesAttend : public ::testing::TestWithParam<cpu::Target> {
 protected:
  // A set of every `stride`-th token.
  static Cut cut(int length, int stride) {
    Cut made;
    made.run = [](const AttendParams& params) { cpu::attend_on(GetParam(), params); };
    made.set.emplace();
    for (int position = 0; position < length; position += stride) made.set->push_back(position);
    made.low_bit_pages = true;
    made.tolerance = kPagesTolerance;
    return made;
  }
};

TEST_P(LowBitPagesAttend, Lengths) {
  RowShape shape;
  shape.values = SliceDType::kInt2;
  for (const auto& lengths :
       {std::vector<int>{64, 65}, {1, 40}, {128, 100}, {1100, 1024}, {2300, 700}}) {
    SCOPED_TRACE(lengths[0]);
    const int shortest = std::min(lengths[0], lengths[1]);
    expect_all_cuts_equal(Decode(shape, lengths), cut(shortest, 9), {0, 96});
  }
}

TEST_P(LowBitPagesAttend, Shapes) {
  for (const SliceDType values : {SliceDType::kInt2, SliceDType::kInt4, SliceDType::kInt8}) {
    for (const int group : {1, 3, 4, 7}) {
      for (const int value_dim : {2, 33, 64, 70, 128, 256}) {
        SCOPED_TRACE(::testing::Message()
                     << slice_dtype_name(values) << " x " << group << " x " << value_dim);
        RowShape shape;
        shape.values = values, shape.group = group, shape.value_dim = value_dim, shape.key_dim = 16;
        const Decode decode(shape, {200});
        expect_all_cuts_equal(decode, cut(200, 7), {0});
      }
    }
  }
}

TEST_P(LowBitPagesAttend, Windows) {
  RowShape shape;
  shape.values = SliceDType::kInt4;
  Cut windowed = cut(0, 1);
  windowed.window = 150;
  for (int position = 600; position < 640; position += 3) windowed.set->push_back(position);
  expect_all_cuts_equal(Decode(shape, {700, 740}), windowed, {0});
}

TEST_P(LowBitPagesAttend, ScoresOfMinusInfinityHaveNoWeight) {
  RowShape shape;
  shape.values = SliceDType::kInt4;
  const Decode decode(shape, {500});
  Cut none = cut(500, 9);
  Cut without = none;
  without.low_bit_pages = false;
  none.low_bit_score = [](int, int position) { return position <= 0 ? 0.0f : -INFINITY; };
  EXPECT_TRUE(attention(decode.cache, decode.step, none) ==
              attention(decode.cache, decode.step, without));
  Cut some = none;
  some.low_bit_score = [](int, int i) {
    return i % 3 == 0 && i > 0 ? -INFINITY : static_cast<float>(i % 5);
  };
  expect_all_cuts_equal(decode, some, {0});
}

// Many small weights beside a large one keep their sum.
TEST_P(LowBitPagesAttend, SmallWeightsAreNotLost) {
  RowShape shape;
  shape.values = SliceDType::kInt4;
  const Decode decode(shape, {640});
  Cut skewed = cut(640, 630);
  skewed.low_bit_score = [](int, int position) {
    return position <= 0 || position % 64 == 3 ? 0.0f : 6.3f;  // weights of 0.0018, half a unit
  };
  Cut reference = skewed;
  reference.run = reference::attend;
  const Result truth = attention(decode.cache, decode.step, reference);
  const Result result = attention(decode.cache, decode.step, skewed);
  for (size_t i = 0; i < truth.lse.size(); ++i) EXPECT_NEAR(result.lse[i], truth.lse[i], 2e-3f);
}

INSTANTIATE_TEST_SUITE_P(Targets, LowBitPagesAttend, ::testing::ValuesIn(cpu::supported_targets()),
                         [](const auto& test) { return std::string(target_name(test.param)); });

}  // namespace
}  // namespace fasa
