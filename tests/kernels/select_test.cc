// TIP score + select: each target's scores against the reference, and its selection against a full
// sort, of its own scores bit for bit, and of the reference's where all sums are exact.
#include <gtest/gtest.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/page_scorer.h"
#include "kernels/cpu/select_head.h"
#include "kernels/reference/kernels.h"
#include "kernels/reference/select.h"
#include "kernels/reference/slices.h"
#include "kernels/slice_codec.h"
#include "kernels/target.h"
#include "runtime/base/error.h"
#include "tests/kernels/select_inputs.h"

namespace fasa {
namespace {

using cpu::Target;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// What a target's own page scores give under a full sort.
reference::GroupScores own_scores(const SelectParams& params, int sequence, int kv_head,
                                  Target target) {
  const SelectPlan plan = plan_selection(params, params.step.sequences[sequence]);
  cpu::PageScorer scorer;
  scorer.begin(params, sequence, kv_head, plan.first, cpu::score_bodies(target));
  cpu::PageScratch scratch;
  scratch.begin(params.step.layout);
  reference::GroupScores own;
  own.heads = params.step.layout.group;
  own.raw.resize(static_cast<size_t>(own.heads * plan.visible()));
  std::vector<float> scores(static_cast<size_t>(own.heads) * kPageTokens);
  for (int page = plan.first / kPageTokens; page * kPageTokens < plan.end; ++page) {
    scorer.score(page, nullptr, &scratch, scores.data());
    for (int t = 0; t < kPageTokens; ++t) {
      const int position = page * kPageTokens + t;
      if (position < plan.first || position >= plan.end) continue;
      for (int h = 0; h < own.heads; ++h) {
        own.raw[static_cast<size_t>(h * plan.visible() + position - plan.first)] =
            scores[static_cast<size_t>(h * kPageTokens + t)];
      }
    }
  }
  return own;
}

// One target's selection of one head, in `splits` parts.
std::vector<int32_t> select_parts(const SelectParams& params, int sequence, int kv_head,
                                  Target target, int splits) {
  const SelectPlan plan = plan_selection(params, params.step.sequences[sequence]);
  std::vector<int32_t> set(static_cast<size_t>(plan.visible()));
  if (plan.is_dense()) {
    cpu::write_all(plan, set.data());
    return set;
  }
  std::vector<cpu::HeadPart> all(static_cast<size_t>(splits));
  std::vector<cpu::HeadPart*> parts;
  const int first = plan.first / kPageTokens;
  const int pages = (plan.end - 1) / kPageTokens + 1 - first;
  const auto begin_of = [&](size_t part) {
    return first + pages * static_cast<int>(part) / splits;
  };
  cpu::PageScratch scratch;
  scratch.begin(params.step.layout);
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<int> sample;
    cpu::HeadPart::list_sample(plan, begin_of(i), begin_of(i + 1), &sample);
    all[i].begin(params, sequence, kv_head, cpu::score_bodies(target), begin_of(i), begin_of(i + 1),
                 sample.size());
    for (const int page : sample) all[i].sample_page(page, nullptr, &scratch);
    parts.push_back(&all[i]);
  }
  cpu::HeadSelection selection(parts);
  selection.set_bounds();
  for (size_t i = 0; i < all.size(); ++i) {
    for (int page = begin_of(i); page < begin_of(i + 1); ++page)
      all[i].scan_page(page, nullptr, &scratch);
  }
  std::optional<int32_t> size = selection.finish(set.data(), {});
  if (!size) {
    for (size_t i = 0; i < all.size(); ++i) {
      for (int page = begin_of(i); page < begin_of(i + 1); ++page)
        all[i].rescan_page(page, nullptr, &scratch);
    }
    size = selection.finish_rescan(set.data(), {});
  }
  set.resize(static_cast<size_t>(*size));
  return set;
}

// Every sequence and head, every target, whole and in parts.
void expect_own_sort(SelectCase& cache) {
  const SelectParams params = cache.params();
  for (const Target target : cpu::supported_targets()) {
    for (int s = 0; s < params.step.count; ++s) {
      const SelectPlan plan = plan_selection(params, params.step.sequences[s]);
      for (int h = 0; h < params.step.layout.kv_heads; ++h) {
        const std::vector<int32_t> expected = sorted_set(plan, own_scores(params, s, h, target));
        EXPECT_EQ(select_parts(params, s, h, target, 1), expected) << cpu::target_name(target);
        EXPECT_EQ(select_parts(params, s, h, target, 3), expected) << cpu::target_name(target);
      }
    }
  }
}

void expect_reference(SelectCase& cache) {
  const SelectParams params = cache.params();
  reference::select(params);
  for (int s = 0; s < params.step.count; ++s) {
    for (int h = 0; h < params.step.layout.kv_heads; ++h) {
      const std::vector<int32_t> expected = cache.set_of(s, h);
      for (const Target target : cpu::supported_targets()) {
        EXPECT_EQ(select_parts(params, s, h, target, 1), expected) << cpu::target_name(target);
      }
    }
  }
}

class SelectOf : public testing::TestWithParam<SliceDType> {};

// A score in f64, and the size of what is added up for it.
struct Expected {
  double score = 0, size = 0;
};

// Of a token of the newest page, of values that nobody rounds, or by a target that requantises
// nothing.
Expected plain_score(const SliceFormat& format, const std::byte* page, float base, int token,
                     const float* q) {
  Expected sum;
  for (int d = 0; d < format.dims; ++d) {
    const double product = double{q[d]} * reference::slice_value(format, page, base, d, token);
    sum.score += product;
    sum.size += std::abs(product);
  }
  return sum;
}

// Of a token of a coded page: weights q x scale in steps of the page's largest / 127 (4095 in int8),
// times codes counted from their middle (score_body_inl.h).
Expected requantised_score(const SliceFormat& format, const std::byte* page, float base, int token,
                           const float* q) {
  const int bits = slice_bits(format.dtype);
  const float limit = format.dtype == SliceDType::kInt8 ? 4095.0f : 127.0f;
  const double middle = ((1 << bits) - 1) / 2.0;
  std::vector<float> weights, scales, zeros;
  float largest = 1e-30f;
  for (int d = 0; d < format.dims; ++d) {
    uint16_t parameter = 0;
    std::memcpy(&parameter, page + format.code_bytes() + d * 2, 2);
    scales.push_back(parameter_scale(parameter, base));
    zeros.push_back(parameter_zero(parameter, bits));
    weights.push_back(q[d] * scales.back());
    largest = std::max(largest, std::abs(weights.back()));
  }
  const double step = largest / limit;
  Expected sum;
  for (int d = 0; d < format.dims; ++d) {
    const auto i = static_cast<size_t>(d);
    const float value = reference::slice_value(format, page, base, d, token);
    const double code = std::nearbyint(value / scales[i] - zeros[i]);
    const double weight = step * std::nearbyint(weights[i] * (limit / largest));
    sum.score += double{weights[i]} * (zeros[i] + middle) + weight * (code - middle);
    sum.size += std::abs(weights[i] * (std::abs(zeros[i]) + middle)) + std::abs(weight) * middle;
  }
  return sum;
}

TEST_P(SelectOf, ScoresAreThoseOfTheRequantisedWeights) {
  const SliceDType dtype = GetParam();
  constexpr int kTokens = 200;
  constexpr int kSealed = kTokens / kPageTokens * kPageTokens;
  for (const int dims : {2, 6, 30, 64, 80, 128}) {
    for (const int group : {1, 3, 4, 8}) {
      SelectShape shape{dtype, dims, 1, group, 4, 16, 0, 32};
      SelectCase cache(shape, {kTokens}, gaussian_keys(1), gaussian_queries(1));
      const SelectParams params = cache.params();
      const SliceFormat format = cache.layout().slice;
      const auto* q = static_cast<const float*>(params.q.data);
      for (const Target target : cpu::supported_targets()) {
        const bool rounds = is_coded(dtype) && target != Target::kPortable;
        const reference::GroupScores own = own_scores(params, 0, 0, target);
        for (size_t i = 0; i < own.raw.size(); ++i) {
          const int token = static_cast<int>(i) % kTokens;
          const float* query = q + static_cast<int>(i) / kTokens * dims;
          Expected expected;
          if (token >= kSealed) {
            const std::byte* tail =
                params.step.sequences[0].tail + cache.layout().tail_offset(0, 0);
            expected = plain_score(format.tail(), tail, 0, token % kPageTokens, query);
          } else {
            const std::byte* block = cache.block(0, token / kPageTokens);
            float base = 0;
            std::memcpy(&base, block + cache.layout().head_index(0, 0) * 4, 4);
            expected = (rounds ? requantised_score : plain_score)(
                format, block + cache.layout().slice_offset(0, 0), base, token % kPageTokens,
                query);
          }
          ASSERT_NEAR(own.raw[i], expected.score, 1e-5 * expected.size)
              << cpu::target_name(target) << " dims " << dims << " group " << group << " token "
              << token;
        }
      }
    }
  }
}

// What ALiBi adds, beside the scores without it; and the set of the sums.
TEST_P(SelectOf, AlibiLowersWhatIsFar) {
  for (const int group : {1, 3, 5}) {
    for (const int window : {0, 100}) {
      SelectShape shape{GetParam(), 10, 2, group, 4, 16, window, 64};
      SelectCase plain(shape, {2500, 70}, gaussian_keys(7), gaussian_queries(7));
      for (int head = 0; head < 2 * group; ++head) {
        shape.slopes.push_back(0.5f / static_cast<float>(head + 1));
      }
      SelectCase cache(shape, {2500, 70}, gaussian_keys(7), gaussian_queries(7));
      expect_own_sort(cache);
      const SelectParams params = cache.params();
      for (int kv_head = 0; kv_head < 2; ++kv_head) {
        const SelectPlan plan = plan_selection(params, params.step.sequences[0]);
        const reference::GroupScores truth = reference::group_scores(params, 0, kv_head);
        const reference::GroupScores level = reference::group_scores(plain.params(), 0, kv_head);
        for (const Target target : cpu::supported_targets()) {
          const reference::GroupScores own = own_scores(params, 0, kv_head, target);
          const reference::GroupScores flat = own_scores(plain.params(), 0, kv_head, target);
          for (size_t i = 0; i < own.raw.size(); ++i) {
            const auto visible = static_cast<size_t>(plan.visible());
            const float slope = shape.slopes[static_cast<size_t>(kv_head * group) + i / visible];
            const int position = plan.first + static_cast<int>(i % visible);
            const float expected = slope * static_cast<float>(position - 2499);
            ASSERT_NEAR(own.raw[i] - flat.raw[i], expected, 1e-3f);
            ASSERT_NEAR(truth.raw[i] - level.raw[i], expected, 1e-3f);
          }
        }
      }
    }
  }
}

// Scores beside those without a cap; and the set of the capped ones, which a group's heads share by
// what is left of their distances.
TEST_P(SelectOf, SoftCap) {
  constexpr float kCap = 1.5f;
  for (const int group : {1, 3, 5}) {
    for (const int page_tokens : {1, 8}) {
      SelectShape shape{GetParam(), 10, 2, group, 4, 16, page_tokens > 1 ? 100 : 0, 64};
      shape.page_tokens = page_tokens;
      SelectCase plain(shape, {2500, 70}, gaussian_keys(7), gaussian_queries(7));
      shape.score_cap = kCap;
      SelectCase cache(shape, {2500, 70}, gaussian_keys(7), gaussian_queries(7));
      expect_own_sort(cache);
      const SelectParams params = cache.params();
      for (const Target target : cpu::supported_targets()) {
        const auto own = own_scores(params, 0, 1, target).raw;
        const auto flat = own_scores(plain.params(), 0, 1, target).raw;
        for (size_t i = 0; i < own.size(); ++i) {
          ASSERT_NEAR(own[i], kCap * std::tanh(flat[i] / kCap), 1e-6f) << flat[i];
        }
      }
      const auto truth = reference::group_scores(params, 0, 1).raw;
      const auto level = reference::group_scores(plain.params(), 0, 1).raw;
      for (size_t i = 0; i < truth.size(); ++i) {
        ASSERT_NEAR(truth[i], kCap * std::tanh(level[i] / kCap), 1e-6f);
      }
    }
  }
}

// The mean of a page's scores, from a window's first token to the newest; and the set of the means.
TEST_P(SelectOf, PagesOfTokensHaveTheirMeanScore) {
  for (const int page_tokens : {8, 16, 32}) {
    for (const int window : {0, 101}) {
      SelectShape shape{GetParam(), 10, 2, 3, 4, 16, window, 64};
      SelectCase plain(shape, {2503, 70}, gaussian_keys(7), gaussian_queries(7));
      shape.page_tokens = page_tokens;
      SelectCase cache(shape, {2503, 70}, gaussian_keys(7), gaussian_queries(7));
      expect_own_sort(cache);
      const SelectParams params = cache.params();
      const SelectPlan plan = plan_selection(params, params.step.sequences[0]);
      const auto truth = reference::group_scores(params, 0, 1).raw;
      const auto single = reference::group_scores(plain.params(), 0, 1).raw;
      for (const Target target : cpu::supported_targets()) {
        const auto own = own_scores(params, 0, 1, target).raw;
        const auto alone = own_scores(plain.params(), 0, 1, target).raw;
        for (int i = 0; i < plan.visible(); ++i) {
          const int page = (plan.first + i) / page_tokens * page_tokens;
          const int begin = std::max(page, plan.first) - plan.first;
          const int end = std::min(page + page_tokens, plan.end) - plan.first;
          float mean = 0, expected = 0;
          for (int t = begin; t < end; ++t) mean += alone[static_cast<size_t>(t)];
          for (int t = begin; t < end; ++t) expected += single[static_cast<size_t>(t)];
          const auto count = static_cast<float>(end - begin);
          ASSERT_NEAR(own[static_cast<size_t>(i)], mean / count, 1e-3f) << i;
          ASSERT_NEAR(truth[static_cast<size_t>(i)], expected / count, 1e-3f) << i;
        }
      }
    }
  }
}

TEST_P(SelectOf, EveryLengthAndBudgetGivesTheFullSort) {
  for (const int tokens : {1, 63, 64, 65, 127, 1000, 1025, 4097}) {
    for (const int budget : {21, 32, 256, 5000}) {
      SelectShape shape{GetParam(), 16, 1, tokens == 1000 ? 3 : 4, 4, 16, 0, budget};
      SelectCase cache(shape, {tokens}, gaussian_keys(static_cast<unsigned>(tokens)),
                       gaussian_queries(2));
      SCOPED_TRACE(testing::Message() << tokens << " tokens, budget " << budget);
      expect_own_sort(cache);
    }
  }
}

TEST_P(SelectOf, GroupsAndWindows) {
  for (const int group : {1, 3, 4, 8}) {
    for (const int window : {0, 1, 21, 100, 1500, 3000}) {
      SelectShape shape{GetParam(), 10, 2, group, 4, 16, window, 64};
      SelectCase cache(shape, {2500, 70}, gaussian_keys(7), gaussian_queries(7));
      SCOPED_TRACE(testing::Message() << "group " << group << " window " << window);
      expect_own_sort(cache);
    }
  }
}

// A guess over a part of the slice: the set of the part alone, whatever the rest holds, and without
// the token that has not been appended yet.
TEST_P(SelectOf, PartsOfTheSliceAndGuesses) {
  const SliceFormat format{GetParam(), 40};
  for (const int score_dims : {1, 4, 16, 17, 39, 40, 100}) {
    for (const int ahead : {0, 2}) {
      const int read = format.prefix(score_dims).dims;
      EXPECT_GE(read, std::min(score_dims, 40));
      EXPECT_LT(read, score_dims + 16);
      for (const int tokens : {1, 64, 65, 129, 1500}) {
        SCOPED_TRACE(testing::Message() << score_dims << " dims, " << tokens << " tokens");
        SelectShape shape{GetParam(), 40, 2, 3, 4, 16, tokens == 1500 ? 700 : 0, 50};
        SelectShape whole = shape;
        shape.score_dims = score_dims;
        shape.ahead = whole.ahead = ahead;
        SelectCase part(shape, {tokens}, gaussian_keys(7), gaussian_queries(7));
        expect_own_sort(part);
        // The whole slice with a query that is zero beyond the part.
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

// What the emulated device is charged shrinks with what is read.
TEST_P(SelectOf, APartCostsAPart) {
  SelectShape shape{GetParam(), 128, 1, 4, 4, 16, 0, 64};
  SelectCase whole(shape, {5000}, gaussian_keys(7), gaussian_queries(7));
  shape.score_dims = 16;
  SelectCase part(shape, {5000}, gaussian_keys(7), gaussian_queries(7));
  const auto all = static_cast<double>(cpu::run(whole.params()).device_bytes);
  EXPECT_NEAR(static_cast<double>(cpu::run(part.params()).device_bytes) / all, 0.13, 0.02);
}

// Codes of full range and scales of 1 (or 2): all sums are small integers and halves. The largest
// weight is the requantisation's limit, which makes its step 1.
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
      SCOPED_TRACE(testing::Message() << "group " << group << " tokens " << tokens);
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
      // Sealed and unsealed pages of equal rows may round differently: only whole-page ties there.
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

// More survivors than there is room for: the scan gives up keeping them and the rescan prunes.
TEST_P(SelectOf, OverflowingSurvivorsAreRescannedExactly) {
  SelectShape shape{GetParam(), 2, 1, 2, 4, 16, 0, 300};
  SelectCase cache(
      shape, {50000}, [](int, int, int t, int) { return t % 16 == 15 || t < 64 ? -1.0f : 1.0f; },
      [](int, int h, int) { return h == 0 ? 1.0f : 2.0f; });
  expect_own_sort(cache);
}

TEST_P(SelectOf, NaNCountsAsMinusInfinityAndIsCounted) {
  if (is_coded(GetParam())) {
    // Codes hold no NaN: only a query can bring one.
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

INSTANTIATE_TEST_SUITE_P(All, SelectOf, testing::ValuesIn(kSelectDTypes), [](const auto& test) {
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
