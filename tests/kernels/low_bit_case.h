// Selections with a low-bit set in addition to the set; for every device's kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/kernels/select_inputs.h"

namespace fasa::low_bit_case {

struct LowBitShape {
  SelectShape select = {.value_dim = 8};
  std::vector<int> lengths = {3000};
  TokenBudget low_bit = {.tokens = 100, .share = 0};
};

inline std::vector<LowBitShape> select_shapes() {
  std::vector<LowBitShape> all;
  const auto add = [&all](auto change) {
    LowBitShape shape;
    change(shape);
    all.push_back(shape);
  };
  add([](LowBitShape&) {});
  for (const SliceDType dtype : kSelectDTypes) {
    add([dtype](LowBitShape& s) {
      s.select.dtype = dtype, s.select.group = 4, s.select.kv_heads = 2;
    });
  }
  add([](LowBitShape& s) { s.low_bit.tokens = 1; });
  add([](LowBitShape& s) { s.low_bit.tokens = 1 << 20; });  // every token outside the set
  add([](LowBitShape& s) { s.low_bit = {.tokens = 0, .share = 0.3f}, s.lengths = {5000, 70, 20}; });
  add([](LowBitShape& s) { s.select.window = 333, s.lengths = {1000, 100}; });
  add([](LowBitShape& s) { s.select.budget = 21, s.select.group = 3, s.low_bit.tokens = 700; });
  add([](LowBitShape& s) { s.select.slopes = {0.25f, 0.02f}, s.select.group = 2; });
  add([](LowBitShape& s) { s.select.score_cap = 2, s.select.group = 3; });
  add([](LowBitShape& s) { s.lengths = {40000}, s.low_bit.tokens = 512, s.select.group = 2; });
  return all;
}

// The set and the low-bit set of every sequence and head.
struct Selected {
  std::vector<std::vector<int32_t>> sets, low_bit;
  std::vector<std::vector<float>> scores;  // [sequence, query head][low_bit]
  bool operator==(const Selected&) const = default;
};

using Select = std::function<void(const SelectParams&)>;

// `selected_tokens` replaces the case's budget; 0 keeps it.
inline Selected select_low_bit(SelectCase& cache, TokenBudget budget, const Select& select,
                               int selected_tokens = 0) {
  SelectParams params = cache.params();
  if (selected_tokens > 0) params.budget.tokens = selected_tokens;
  const CacheLayout& layout = cache.layout();
  const int heads = params.step.count * layout.kv_heads;
  const int capacity = params.selected_capacity;
  std::vector<int32_t> positions(static_cast<size_t>(heads * capacity), -7);
  std::vector<int32_t> sizes(static_cast<size_t>(heads), -7);
  std::vector<float> scores(static_cast<size_t>(heads * layout.gqa_group * capacity), NAN);
  params.low_bit_budget = budget;
  if (budget.tokens > 0 || budget.share > 0) {
    params.low_bit = {.capacity = capacity,
                      .positions = positions.data(),
                      .sizes = sizes.data(),
                      .scores = scores.data()};
  }
  select(params);
  Selected selected;
  for (int head = 0; head < heads; ++head) {
    selected.sets.push_back(cache.set_of(head / layout.kv_heads, head % layout.kv_heads));
    const int32_t size = params.low_bit.capacity > 0 ? sizes[static_cast<size_t>(head)] : 0;
    const int32_t* first = positions.data() + head * capacity;
    selected.low_bit.emplace_back(first, first + size);
    for (int h = head * layout.gqa_group; h < (head + 1) * layout.gqa_group; ++h) {
      const float* of_head = scores.data() + h * capacity;
      selected.scores.emplace_back(of_head, of_head + size);
    }
  }
  return selected;
}

// The low-bit set holds the tokens that a larger set would add, by the same kernel; its scores are
// near the reference's.
inline void expect_next_best(const LowBitShape& shape, const SelectCase::KeyOf& key,
                             const Select& select) {
  SelectCase cache(shape.select, shape.lengths, key, gaussian_queries(9));
  const Selected with = select_low_bit(cache, shape.low_bit, select);
  EXPECT_EQ(with.sets, select_low_bit(cache, {}, select).sets) << "the set is as ever";
  const SelectParams params = cache.params();
  const CacheLayout& layout = cache.layout();
  for (int s = 0; s < params.step.count; ++s) {
    const SelectPlan plan = plan_selection(params, params.step.sequences[s]);
    const int left = plan.visible() - plan.budget;
    const int low_bit = std::min(shape.low_bit.of(plan.visible(), 0), left);
    const Selected both = select_low_bit(cache, {}, select, plan.budget + low_bit);
    for (int h = 0; h < layout.kv_heads; ++h) {
      const auto head = static_cast<size_t>(s * layout.kv_heads + h);
      std::vector<int32_t> beyond;
      std::set_difference(both.sets[head].begin(), both.sets[head].end(), with.sets[head].begin(),
                          with.sets[head].end(), std::back_inserter(beyond));
      EXPECT_EQ(with.low_bit[head], beyond) << "sequence " << s << ", head " << h;
      const reference::GroupScores truth = reference::group_scores(params, s, h);
      float largest = 1e-6f;
      for (const float score : truth.raw) largest = std::max(largest, std::abs(score));
      for (int g = 0; g < layout.gqa_group; ++g) {
        const auto& scores =
            with.scores[head * static_cast<size_t>(layout.gqa_group) + static_cast<size_t>(g)];
        for (size_t i = 0; i < scores.size(); ++i) {
          const auto at =
              static_cast<size_t>(g * plan.visible() + with.low_bit[head][i] - plan.first);
          ASSERT_NEAR(scores[i], truth.raw[at], 0.02f * largest)
              << "position " << with.low_bit[head][i];
        }
      }
    }
  }
}

}  // namespace fasa::low_bit_case
