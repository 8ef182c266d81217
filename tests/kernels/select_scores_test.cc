// TIP scores: every target against the reference, and the effect of ALiBi slopes, soft caps and
// page means.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/slice_codec.h"
#include "tests/kernels/select_targets.h"
#include "tests/support/reference/select.h"
#include "tests/support/reference/slices.h"

namespace fasa {
namespace {

using cpu::Target;

class SelectScoresOf : public ::testing::TestWithParam<SliceDType> {};

// A score in f64, and the sum of the magnitudes of its terms.
struct Expected {
  double score = 0, size = 0;
};

// The score of a token in the newest page, or by a target that does not requantise weights; no
// value is rounded.
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

// The score of a token in a coded page: weights q x scale, rounded to steps of the page's largest /
// 127 (4095 in int8), times the codes relative to their midpoint (score_body_inl.h).
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

// Every target's scores of a case, token by token.
void expect_requantised(const SelectShape& shape, int tokens) {
  SelectCase cache(shape, {tokens}, gaussian_keys(1), gaussian_queries(1));
  const SelectParams params = cache.params();
  const SliceFormat format = cache.layout().slice;
  const int sealed = tokens / kPageTokens * kPageTokens;
  for (const Target target : cpu::supported_targets()) {
    const bool rounds = is_coded(shape.dtype) && target != Target::kPortable;
    const reference::GroupScores own = own_scores(params, 0, 0, target);
    for (size_t i = 0; i < own.raw.size(); ++i) {
      const int token = static_cast<int>(i) % tokens;
      const float* q =
          static_cast<const float*>(params.q.data) + static_cast<int>(i) / tokens * shape.dims;
      std::vector<float> query;
      for (int d = 0; d < format.dims; ++d) query.push_back(q[params.step.slice_dims[d]]);
      Expected expected;
      if (token >= sealed) {
        const std::byte* tail = params.step.sequences[0].tail + cache.layout().tail_offset(0, 0);
        expected = plain_score(format.tail(), tail, 0, token % kPageTokens, query.data());
      } else {
        const std::byte* block = cache.block(0, token / kPageTokens);
        float base = 0;
        std::memcpy(&base, block + cache.layout().head_index(0, 0) * 4, 4);
        expected = (rounds ? requantised_score : plain_score)(
            format, block + cache.layout().slice_offset(0, 0), base, token % kPageTokens,
            query.data());
      }
      ASSERT_NEAR(own.raw[i], expected.score, 1e-5 * expected.size)
          << cpu::target_name(target) << " dims " << shape.dims << " fine " << shape.fine
          << " group " << shape.group << " token " << token;
    }
  }
}

TEST_P(SelectScoresOf, ScoresAreThoseOfTheRequantisedWeights) {
  for (const int dims : {2, 6, 30, 64, 80, 128}) {
    for (const int group : {1, 3, 4, 8}) {
      SelectShape shape{GetParam(), dims, 1, group, 4, 16, 0, 32};
      expect_requantised(shape, 200);
      if (GetParam() != SliceDType::kInt2) continue;
      shape.fine = group == 8 ? dims : dims / 4 * 2;
      expect_requantised(shape, 200);
    }
  }
}

// The queries meet both parts of a fine dimension: scores are those of int4 codes.
TEST(FineScores, AllDimensionsInTwoPartsAreInt4) {
  const SelectShape two{.dims = 30, .fine = 30};
  const SelectShape four{.dtype = SliceDType::kInt4, .dims = 30};
  SelectCase fine(two, {200}, gaussian_keys(1), gaussian_queries(1));
  SelectCase coded(four, {200}, gaussian_keys(1), gaussian_queries(1));
  const auto a = reference::group_scores(fine.params(), 0, 0).raw;
  const auto b = reference::group_scores(coded.params(), 0, 0).raw;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-3f) << i;
}

// ALiBi changes each score by its bias; the set is the one of the biased scores.
TEST_P(SelectScoresOf, AlibiLowersWhatIsFar) {
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

// Capped against uncapped scores; and the set of the capped scores, which a group's heads combine
// by their capped distances.
TEST_P(SelectScoresOf, SoftCap) {
  constexpr float kCap = 1.5f;
  for (const int group : {1, 3, 5}) {
    for (const int window : {0, 100}) {
      SelectShape shape{GetParam(), 10, 2, group, 4, 16, window, 64};
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

INSTANTIATE_TEST_SUITE_P(All, SelectScoresOf, ::testing::ValuesIn(kSelectDTypes),
                         [](const auto& test) {
                           return std::string(slice_dtype_name(test.param));
                         });

}  // namespace
}  // namespace fasa
