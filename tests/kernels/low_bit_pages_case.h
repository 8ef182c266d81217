// Selections with a low-bit set of all other tokens, by page; for every device's kernel.
#pragma once

#include "tests/kernels/low_bit_case.h"

namespace fasa::low_bit_case {

// What a select writes; compared bit by bit.
struct SelectedPages {
  std::vector<std::vector<int32_t>> sets;
  std::vector<int32_t> counts;
  std::vector<float> maxima;
  std::vector<int16_t> scores;
  int capacity = 0;
  bool operator==(const SelectedPages&) const = default;
};

inline SelectedPages select_pages(SelectCase& cache, float scale, const Select& select) {
  SelectParams params = cache.params();
  const CacheLayout& layout = cache.layout();
  const int heads = params.step.count * layout.kv_heads;
  int longest = 0;
  for (int s = 0; s < params.step.count; ++s) {
    longest = std::max(longest, params.step.sequences[s].end());
  }
  SelectedPages selected;
  selected.capacity = pages_of(longest) + 2;
  const auto entries = static_cast<size_t>(heads * layout.gqa_group * selected.capacity);
  selected.counts.assign(static_cast<size_t>(heads), -7);
  selected.maxima.assign(entries, -7);
  selected.scores.assign(entries * kPageTokens, 7);
  params.low_bit_budget = {.tokens = 0, .share = 1};
  params.low_bit_pages = {.capacity = selected.capacity,
                          .scale = scale,
                          .counts = selected.counts.data(),
                          .maxima = selected.maxima.data(),
                          .scores = selected.scores.data()};
  select(params);
  for (int head = 0; head < heads; ++head) {
    selected.sets.push_back(cache.set_of(head / layout.kv_heads, head % layout.kv_heads));
  }
  return selected;
}

// The set is as without a low-bit set. Every other visible token has a score near the reference's.
inline void expect_all_others(const LowBitShape& shape, const SelectCase::KeyOf& key,
                              const Select& select) {
  constexpr float kScale = 0.3f;
  SelectCase cache(shape.select, shape.lengths, key, gaussian_queries(9));
  const SelectedPages with = select_pages(cache, kScale, select);
  EXPECT_EQ(with.sets, select_low_bit(cache, {}, select).sets) << "the set is as ever";
  const SelectParams params = cache.params();
  const CacheLayout& layout = cache.layout();
  for (int s = 0; s < params.step.count; ++s) {
    const SelectPlan plan = plan_selection(params, params.step.sequences[s]);
    for (int h = 0; h < layout.kv_heads; ++h) {
      const int head = s * layout.kv_heads + h;
      const auto& set = with.sets[static_cast<size_t>(head)];
      ASSERT_EQ(with.counts[static_cast<size_t>(head)], plan.is_dense() ? 0 : plan.pages());
      if (plan.is_dense()) continue;
      const reference::GroupScores truth = reference::group_scores(params, s, h);
      float largest = 1e-6f;
      for (const float score : truth.raw) largest = std::max(largest, std::abs(score));
      const float tolerance = 0.04f * largest * kScale + 1 / kScoreUnits;
      for (int i = 0; i < layout.gqa_group * plan.pages() * kPageTokens; ++i) {
        const int g = i / (plan.pages() * kPageTokens);
        const int page = i / kPageTokens % plan.pages();
        const int position = (plan.first_page() + page) * kPageTokens + i % kPageTokens;
        const int64_t at = int64_t{head * layout.gqa_group + g} * with.capacity + page;
        const int16_t code = with.scores[static_cast<size_t>(at * kPageTokens + i % kPageTokens)];
        const bool visible = position >= plan.first && position < plan.end;
        if (!visible || std::ranges::binary_search(set, position)) {
          ASSERT_EQ(code, kNoScoreCode) << position;
          continue;
        }
        const float score =
            with.maxima[static_cast<size_t>(at)] + static_cast<float>(code) / kScoreUnits;
        const float expected =
            truth.raw[static_cast<size_t>(g * plan.visible() + position - plan.first)] * kScale;
        if (code == kLowestScoreCode) continue;  // at least 127 below a token of the page
        ASSERT_NEAR(score, expected, tolerance) << "position " << position;
      }
    }
  }
}

}  // namespace fasa::low_bit_case
