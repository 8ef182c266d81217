// Selections with runners-up in addition to the set and the low-bit set; for every device's kernel.
#pragma once

#include "tests/kernels/low_bit_case.h"

namespace fasa::runners_up_case {

using low_bit_case::LowBitShape;
using low_bit_case::Select;
using low_bit_case::select_low_bit;

// [head][rank]
using RunnersUpOf = std::vector<std::vector<int32_t>>;

// A select that also asks for runners-up; with capacity 0, as ever.
inline Select with_runners_up(const Select& select, int32_t capacity, RunnersUpOf& found) {
  return [&select, capacity, &found](const SelectParams& given) {
    SelectParams params = given;
    const auto heads = static_cast<size_t>(params.step.count * params.step.layout.kv_heads);
    std::vector<int32_t> positions(heads * static_cast<size_t>(capacity), -7);
    std::vector<int32_t> sizes(heads, -7);
    params.runners_up = {capacity, positions.data(), sizes.data()};
    select(params);
    found.clear();
    for (size_t head = 0; head < heads; ++head) {
      ASSERT_GE(sizes[head], 0);
      ASSERT_LE(sizes[head], capacity);
      const auto first = positions.begin() + static_cast<int64_t>(head) * capacity;
      found.emplace_back(first, first + sizes[head]);
    }
  };
}

// Number i is the token that a set of one more takes beside the set and those before it. Sets and
// low-bit sets are as without. `may_be_none`: heads may write none.
inline void expect_ranked(const LowBitShape& shape, int32_t capacity, const SelectCase::KeyOf& key,
                          const Select& select, bool may_be_none = false) {
  SelectCase cache(shape.select, shape.lengths, key, gaussian_queries(9));
  for (size_t i = 0; i < shape.lengths.size(); ++i) {
    cache.descriptor(static_cast<int>(i)).hot_rows = 1 << 20;  // as many as the set
  }
  RunnersUpOf found;
  const auto with = select_low_bit(cache, shape.low_bit, with_runners_up(select, capacity, found));
  const auto without = select_low_bit(cache, shape.low_bit, select);
  EXPECT_EQ(with.sets, without.sets);
  EXPECT_EQ(with.low_bit, without.low_bit);
  EXPECT_EQ(with.scores.size(), without.scores.size());
  const SelectParams params = cache.params();
  const int kv_heads = cache.layout().kv_heads;
  for (int s = 0; s < params.step.count; ++s) {
    const SelectPlan plan = plan_selection(params, params.step.sequences[s]);
    const int size = std::min({capacity, plan.budget, plan.visible() - plan.budget});
    for (int h = 0; h < kv_heads; ++h) {
      const auto head = static_cast<size_t>(s * kv_heads + h);
      if (may_be_none && found[head].empty()) continue;
      EXPECT_EQ(found[head].size(), static_cast<size_t>(size));
    }
    for (int ranks = 1; ranks <= size; ranks += ranks < 6 ? 1 : std::max(1, size / 4)) {
      const auto larger = select_low_bit(cache, {}, select, plan.budget + ranks).sets;
      for (int h = 0; h < kv_heads; ++h) {
        const auto head = static_cast<size_t>(s * kv_heads + h);
        if (found[head].empty()) continue;
        std::vector<int32_t> beyond;
        std::ranges::set_difference(larger[head], with.sets[head], std::back_inserter(beyond));
        std::vector<int32_t> first(found[head].begin(), found[head].begin() + ranks);
        std::ranges::sort(first);
        EXPECT_EQ(first, beyond) << "sequence " << s << ", head " << h << ", " << ranks;
      }
    }
  }
}

}  // namespace fasa::runners_up_case
