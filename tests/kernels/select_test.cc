// TIP score and select: each target's set equals a full sort of its own scores, and of the
// reference's scores where all sums are exact. select_scores_test.cc tests the scores.
#include <gtest/gtest.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/target.h"
#include "runtime/base/error.h"
#include "tests/kernels/select_inputs.h"
#include "tests/kernels/select_targets.h"
#include "tests/support/reference/kernels.h"
#include "tests/support/reference/select.h"

namespace fasa {
namespace {

using cpu::Target;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class SelectOf : public ::testing::TestWithParam<SliceDType> {};

TEST_P(SelectOf, EveryLengthAndBudgetGivesTheFullSort) {
  for (const int tokens : {1, 63, 64, 65, 127, 1000, 1025, 4097}) {
    for (const int budget : {21, 32, 256, 5000}) {
      SelectShape shape{GetParam(), 16, 1, tokens == 1000 ? 3 : 4, 4, 16, 0, budget};
      SelectCase cache(shape, {tokens}, gaussian_keys(static_cast<unsigned>(tokens)),
                       gaussian_queries(2));
      SCOPED_TRACE(::testing::Message() << tokens << " tokens, budget " << budget);
      expect_own_sort(cache);
    }
  }
}

TEST_P(SelectOf, GroupsAndWindows) {
  for (const int group : {1, 3, 4, 8}) {
    for (const int window : {0, 1, 21, 100, 1500, 3000}) {
      SelectShape shape{GetParam(), 10, 2, group, 4, 16, window, 64};
      SelectCase cache(shape, {2500, 70}, gaussian_keys(7), gaussian_queries(7));
      SCOPED_TRACE(::testing::Message() << "group " << group << " window " << window);
      expect_own_sort(cache);
    }
  }
}

// A prediction over a part of the slice gives the set of that part alone, whatever the other
// dimensions hold, and excludes the token that is not appended yet.
TEST_P(SelectOf, PartsOfTheSliceAndPredictions) {
  const SliceFormat format{GetParam(), 40};
  for (const int score_dims : {1, 4, 16, 17, 39, 40, 100}) {
    for (const int ahead : {0, 2}) {
      const int read = format.prefix(score_dims).dims;
      EXPECT_GE(read, std::min(score_dims, 40));
      EXPECT_LT(read, score_dims + 16);
      for (const int tokens : {1, 64, 65, 129, 1500}) {
        SCOPED_TRACE(::testing::Message() << score_dims << " dims, " << tokens << " tokens");
        SelectShape shape{GetParam(), 40, 2, 3, 4, 16, tokens == 1500 ? 700 : 0, 50};
        SelectShape whole = shape;
        shape.score_dims = score_dims;
        shape.ahead = whole.ahead = ahead;
        SelectCase part(shape, {tokens}, gaussian_keys(7), gaussian_queries(7));
        expect_own_sort(part);
        // The reference: the whole slice with a query that is zero outside the part.
        const auto query = gaussian_queries(7);
        SelectCase zeros(whole, {tokens}, gaussian_keys(7),
                         [&](int s, int h, int d) { return query(s, h, d) * (d < read ? 1 : 0); });
        for (int head = 0; head < 2; ++head) {
          const auto a = reference::group_scores(part.params(), 0, head).raw;
          const auto b = reference::group_scores(zeros.params(), 0, head).raw;
          EXPECT_EQ(a, b);
          EXPECT_EQ(a.size(),
                    3 * static_cast<size_t>(std::min(tokens, shape.window > 0 ? 700 : tokens) -
                                            (ahead > 0 ? 1 : 0)));
          for (const Target target : cpu::supported_targets()) {
            const auto own = own_scores(part.params(), 0, head, target).raw;
            const auto all = own_scores(zeros.params(), 0, head, target).raw;
            ASSERT_EQ(own.size(), all.size());
            for (size_t i = 0; i < own.size(); ++i) ASSERT_NEAR(own[i], all[i], 1e-3f);
          }
        }
      }
    }
  }
}

// The emulated device charges a part of the slice for the bytes of the part only.
TEST_P(SelectOf, APartCostsAPart) {
  SelectShape shape{GetParam(), 128, 1, 4, 4, 16, 0, 64};
  SelectCase whole(shape, {5000}, gaussian_keys(7), gaussian_queries(7));
  shape.score_dims = 16;
  SelectCase part(shape, {5000}, gaussian_keys(7), gaussian_queries(7));
  const auto all = static_cast<double>(cpu::run(whole.params()).device_bytes);
  EXPECT_NEAR(static_cast<double>(cpu::run(part.params()).device_bytes) / all, 0.13, 0.02);
}

// Codes of full range and scales of 1 (or 2): all sums are small integers and halves. The largest
// weight equals the requantisation's range, so that its step is 1.
TEST_P(SelectOf, ExactSumsGiveTheReferencesSet) {
  const SliceDType dtype = GetParam();
  std::mt19937 random(11);
  for (const int group : {1, 4, 5}) {
    for (const int tokens : {300, 3000}) {
      SelectShape shape{dtype, 32, 1, group, 4, 16, 0, 100};
      const auto limit = static_cast<float>(dtype == SliceDType::kInt8 ? 4095 : 127);
      SelectCase cache(
          shape, {tokens},
          [&](int, int, int, int) {
            return static_cast<float>(static_cast<int>(random() % 5) - 2);
          },
          [&](int, int, int d) {
            return d == 3 ? limit : static_cast<float>(static_cast<int>(random() % 15) - 7);
          });
      if (is_coded(dtype)) {
        fill_with_codes(cache, tokens, 1, random);
      }
      SCOPED_TRACE(::testing::Message() << "group " << group << " tokens " << tokens);
      expect_reference(cache);
      expect_own_sort(cache);
    }
  }
}

TEST_P(SelectOf, EqualRowsAndZeroQueriesGoToTheLowerPositions) {
  for (const int tokens : {100, 2000, 40000}) {
    SelectShape shape{GetParam(), 4, 1, 2, 4, 16, 0, 50};
    SelectCase equal(
        shape, {tokens}, [](int, int, int, int d) { return static_cast<float>(d); },
        [](int, int, int) { return 1.0f; });
    SelectCase zeros(shape, {tokens}, gaussian_keys(3), [](int, int, int) { return 0.0f; });
    const std::vector<int32_t> expected = first_and_recent(34, tokens);
    for (SelectCase* cache : {&equal, &zeros}) {
      // Sealed and unsealed pages of equal rows may round differently: use ties of whole pages
      // only.
      if (cache == &equal && is_coded(GetParam())) {
        expect_own_sort(*cache);
        continue;
      }
      for (const Target target : cpu::supported_targets()) {
        EXPECT_EQ(select_parts(cache->params(), 0, 0, target, 1), expected);
        EXPECT_EQ(select_parts(cache->params(), 0, 0, target, 2), expected);
      }
    }
  }
}

TEST_P(SelectOf, UnrepresentativeSamplesLoseNothing) {
  for (const auto& key : misleading_keys()) {
    for (const int group : {1, 4}) {
      SelectShape shape{GetParam(), 4, 1, group, 4, 16, 0, 120};
      SelectCase cache(shape, {6000}, key,
                       [](int, int h, int d) { return h % 4 == d ? 2.0f : 0.25f; });
      expect_own_sort(cache);
    }
  }
}

// More candidates than the buffer holds: the scan stops keeping them, and the rescan prunes.
TEST_P(SelectOf, OverflowingCandidatesAreRescannedExactly) {
  SelectShape shape{GetParam(), 2, 1, 2, 4, 16, 0, 300};
  SelectCase cache(
      shape, {50000}, [](int, int, int t, int) { return t % 16 == 15 || t < 64 ? -1.0f : 1.0f; },
      [](int, int h, int) { return h == 0 ? 1.0f : 2.0f; });
  expect_own_sort(cache);
}

TEST_P(SelectOf, NaNCountsAsMinusInfinityAndIsCounted) {
  if (is_coded(GetParam())) {
    // Codes hold no NaN: only a query can contain one.
    SelectShape shape{GetParam(), 8, 1, 2, 4, 16, 0, 40};
    SelectCase cache(shape, {500}, gaussian_keys(5),
                     [](int, int h, int d) { return h == 1 && d == 2 ? kNaN : 1.0f; });
    const SelectParams params = cache.params();
    cpu::run(params);
    EXPECT_EQ(cache.counters().nan_scores, 500u);
    expect_own_sort(cache);
    return;
  }
  for (const int tokens : {500, 3000}) {
    SelectShape shape{GetParam(), 8, 1, 2, 4, 16, 0, 40};
    SelectCase cache(shape, {tokens}, odd_keys(), [](int, int, int) { return 0.5f; });
    const SelectParams params = cache.params();
    cpu::run(params);
    EXPECT_EQ(cache.counters().nan_scores, static_cast<uint64_t>(tokens / 100 * 2));
    const std::vector<int32_t> set = cache.set_of(0, 0);
    EXPECT_TRUE(std::binary_search(set.begin(), set.end(), 77));
    EXPECT_FALSE(std::binary_search(set.begin(), set.end(), 50));
    expect_own_sort(cache);
  }
}

TEST_P(SelectOf, NothingButNaNStillFillsTheSet) {
  SelectShape shape{GetParam(), 4, 1, 2, 4, 16, 0, 60};
  SelectCase cache(
      shape, {2000}, [](int, int, int, int) { return 1.0f; }, [](int, int, int) { return kNaN; });
  const SelectParams params = cache.params();
  cpu::run(params);
  EXPECT_EQ(cache.set_of(0, 0), first_and_recent(44, 2000));
  EXPECT_EQ(cache.counters().nan_scores, 4000u);
}

TEST_P(SelectOf, HeadsInPartsHaveTheSameSets) {
  SelectShape shape{GetParam(), 16, 5, 2, 4, 16, 0, 200};
  SelectCase cache(shape, {12000, 1, 700, 3000, 64}, gaussian_keys(11), gaussian_queries(11));
  cache.descriptor(2).mode = StepMode::kPrefill;
  expect_same_in_parts(cache, cache.params(), cpu::run<SelectParams>);
  expect_same_in_parts(cache, cache.params(), reference::select);
}

TEST_P(SelectOf, ThreadsAndBatchChangeNothing) {
  SelectShape shape{GetParam(), 16, 2, 4, 4, 16, 0, 200};
  const std::vector<int> lengths = {40000, 1, 700, 33000, 64};
  SelectCase cache(shape, lengths, gaussian_keys(9), gaussian_queries(9));
  cache.descriptor(2).mode = StepMode::kPrefill;
  const SelectParams params = cache.params();
  tbb::task_arena(1).execute([&] { cpu::run(params); });
  std::vector<std::vector<int32_t>> expected;
  for (int s = 0; s < 5; ++s) {
    for (int h = 0; h < 2; ++h) expected.push_back(cache.set_of(s, h));
  }
  EXPECT_TRUE(expected[4].empty());
  for (const int threads : {2, 8}) {
    for (int first = 0; first < 5; ++first) {
      for (const int count : {1, 5}) {
        if (first + count > 5) continue;
        SelectParams part = params;
        part.step.sequences += first;
        part.step.count = count;
        KernelWork work;
        tbb::task_arena(threads).execute([&] { work = cpu::run(part); });
        for (int s = 0; s < count; ++s) {
          for (int h = 0; h < 2; ++h) {
            EXPECT_EQ(cache.set_of(s, h), expected[static_cast<size_t>((first + s) * 2 + h)]);
          }
        }
        EXPECT_EQ(work.device_bytes > 0, first == 0 || first == 3) << first;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SelectOf, ::testing::ValuesIn(kSelectDTypes), [](const auto& test) {
  return std::string(slice_dtype_name(test.param));
});

TEST(Select, TakesHalfPrecisionAndStridedQueries) {
  SelectShape shape{SliceDType::kInt4, 8, 1, 2, 1, 4, 0, 20};
  SelectCase cache(shape, {300}, gaussian_keys(4),
                   [](int, int h, int d) { return StridedQueries::value(h, d); });
  SelectParams params = cache.params();
  reference::select(params);
  const std::vector<int32_t> expected = cache.set_of(0, 0);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const StridedQueries queries(dtype);
    params.q = queries.view();
    reference::select(params);
    EXPECT_EQ(cache.set_of(0, 0), expected);
    const std::vector<int32_t> own = sorted_set(plan_selection(params, *params.step.sequences),
                                                own_scores(params, 0, 0, cpu::active_target()));
    cpu::run(params);
    EXPECT_EQ(cache.set_of(0, 0), own);
  }
}

TEST(Target, NamesWhatThisProcessorRuns) {
  for (const Target target : cpu::supported_targets()) {
    EXPECT_EQ(cpu::choose_target(std::string(cpu::target_name(target)).c_str()), target);
  }
  EXPECT_EQ(cpu::choose_target(nullptr), cpu::supported_targets().back());
  try {
    cpu::choose_target("avx9");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("avx9"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos);
  }
}

}  // namespace
}  // namespace fasa
