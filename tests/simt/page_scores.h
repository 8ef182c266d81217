// The CUDA scorer's scores in f64, without its order of sums; for coded pages with the weights
// rounded to f16 as in page_scorer_inl.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/params.h"
#include "kernels/select_plan.h"
#include "kernels/slice_codec_inl.h"
#include "tests/support/reference/slices.h"

namespace fasa {

struct PageScore {
  double score = 0;
  double bound = 0;  // error bound of the f32 sums
};

class PageScores {
 public:
  PageScores(const SelectParams& params, int sequence, int kv_head)
      : params_(params),
        layout_(params.step.layout),
        sequence_(params.step.sequences[sequence]),
        plan_(plan_selection(params, sequence_)),
        kv_head_(kv_head),
        dims_(layout_.slice.prefix(params.score_dims).dims) {}

  // [group][visible]
  std::vector<PageScore> all() const {
    std::vector<PageScore> scores;
    for (int h = 0; h < layout_.gqa_group; ++h) {
      const std::vector<float> query = query_of(h);
      std::vector<PageScore> of_head;
      for (int p = plan_.first; p < plan_.end; ++p) of_head.push_back(score(h, query, p));
      if (params_.step.score_cap > 0) cap(of_head);
      scores.insert(scores.end(), of_head.begin(), of_head.end());
    }
    return scores;
  }

 private:
  struct Sum {
    double value = 0, size = 0;
    void add(double product) {
      value += product;
      size += std::abs(product);
    }
  };

  std::vector<float> query_of(int head) const {
    const int16_t* dims = params_.step.slice_dims + kv_head_ * layout_.slice.dims;
    const int64_t at = params_.q.offset(sequence_.first_token, kv_head_ * layout_.gqa_group + head);
    std::vector<float> query;
    for (int d = 0; d < dims_; ++d) {
      query.push_back(load_element(params_.q.dtype, params_.q.data, at + dims[d]));
    }
    return query;
  }

  PageScore score(int head, const std::vector<float>& query, int position) const {
    Sum sum = position / kPageTokens >= sequence_.sealed_pages() || !is_coded(layout_.slice.dtype)
                  ? of_floats(query, position)
                  : of_codes(query, position);
    if (params_.step.slopes != nullptr) {
      const double slope = params_.step.slopes[kv_head_ * layout_.gqa_group + head];
      sum.add(slope * (position - (sequence_.end() - 1)));
    }
    // A chain of n roundings to f32, each of 2^-24 of the sum of magnitudes; near the smallest
    // numbers, of one subnormal step.
    return {sum.value, (dims_ + 16) * 0x1p-24 * sum.size + 0x1p-149};
  }

  Sum of_floats(const std::vector<float>& query, int position) const {
    const int page = position / kPageTokens;
    const bool sealed = page < sequence_.sealed_pages();
    const SliceFormat format = sealed ? layout_.slice : layout_.slice.tail();
    const std::byte* data =
        sealed ? sequence_.slice_blocks[page] + layout_.slice_offset(params_.step.layer, kv_head_)
               : sequence_.tail + layout_.tail_offset(params_.step.layer, kv_head_);
    Sum sum;
    for (size_t d = 0; d < query.size(); ++d) {
      sum.add(double{query[d]} *
              reference::slice_value(format, data, 1, static_cast<int>(d), position % kPageTokens));
    }
    return sum;
  }

  Sum of_codes(const std::vector<float>& query, int position) const {
    const SliceFormat& format = layout_.slice;
    const std::byte* block = sequence_.slice_blocks[position / kPageTokens];
    const std::byte* page = block + layout_.slice_offset(params_.step.layer, kv_head_);
    float base = 0;
    std::memcpy(&base, block + layout_.head_index(params_.step.layer, kv_head_) * 4, 4);
    const int bits = slice_bits(format.dtype);
    const int exponent = scale_exponent(query);
    Sum sum;
    for (size_t i = 0; i < query.size(); ++i) {
      const int d = static_cast<int>(i);
      uint16_t parameter = 0;
      std::memcpy(&parameter, page + format.code_bytes() + d * 2, 2);
      const float weight =
          std::ldexp(query[i], -exponent) * codec::scale_of_step(-(parameter & 63));
      const float zero = parameter_zero(parameter, bits);
      const float value = reference::slice_value(format, page, 1, d, position % kPageTokens);
      const double code = std::nearbyint(value / parameter_scale(parameter, 1) - zero);
      // The code's bits stay at their position in the byte; the weight is scaled to match.
      const int place = d % (32 / bits) / 4 * bits;
      const double rounded =
          std::ldexp(f32_from_f16(f16_from_f32(std::ldexp(weight, -place))), place);
      sum.add(double{weight} * zero);
      sum.add(rounded * code);
    }
    const double back = std::ldexp(double{base}, exponent);
    return {sum.value * back, sum.size * std::abs(back)};
  }

  // The exponent that scales a query to a largest element in [1, 2); for very small and very large
  // queries, the nearest whose inverse is a normal number.
  static int scale_exponent(const std::vector<float>& query) {
    float largest = 0;
    for (const float value : query) largest = std::max(largest, std::abs(value));
    return largest == 0 ? 0 : std::clamp(std::ilogb(largest), -126, 126);
  }

  void cap(std::vector<PageScore>& scores) const {
    const double cap = params_.step.score_cap;
    for (PageScore& of : scores) {
      of.score = cap * std::tanh(of.score / cap);
      of.bound += 8 * 0x1p-24 * cap;
    }
  }

  const SelectParams& params_;
  const CacheLayout& layout_;
  const SequenceDesc& sequence_;
  const SelectPlan plan_;
  const int kv_head_;
  const int dims_;
};

// `own`: [group][visible], from the scorer itself; its error is at most `slack` times the bound.
inline void expect_scores(const SelectParams& params, int sequence, int kv_head,
                          const std::vector<float>& own, double slack = 1) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const std::vector<PageScore> expected = PageScores(params, sequence, kv_head).all();
  if (expected.empty()) return;
  ASSERT_EQ(own.size(), expected.size());
  for (size_t i = 0; i < own.size(); ++i) {
    if (std::abs(expected[i].score) + expected[i].bound >= kLargest) {
      ASSERT_GE(std::abs(own[i]), kLargest * 0.999f) << i;
      ASSERT_EQ(std::signbit(own[i]), std::signbit(expected[i].score)) << i;
      continue;
    }
    ASSERT_NEAR(own[i], expected[i].score, slack * expected[i].bound) << i;
  }
}

}  // namespace fasa
