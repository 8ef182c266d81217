// The processor's select on each of its targets, for tests.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "kernels/cpu/select/page_scorer.h"
#include "kernels/cpu/select/select_head.h"
#include "kernels/target.h"
#include "tests/kernels/select_inputs.h"
#include "tests/support/reference/kernels.h"
#include "tests/support/reference/select.h"

namespace fasa {

// The scores that a target itself computes, for a full sort.
inline reference::GroupScores own_scores(const SelectParams& params, int sequence, int kv_head,
                                         cpu::Target target) {
  const SelectPlan plan = plan_selection(params, params.step.sequences[sequence]);
  cpu::PageScorer scorer;
  scorer.begin(params, sequence, kv_head, plan.first, cpu::score_bodies(target));
  cpu::PageScratch scratch;
  scratch.begin(params.step.layout);
  reference::GroupScores own;
  own.heads = params.step.layout.gqa_group;
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

// One target's selection for one head, in `splits` parts.
inline std::vector<int32_t> select_parts(const SelectParams& params, int sequence, int kv_head,
                                         cpu::Target target, int splits) {
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

// Every sequence, head and target, in one call and in parts.
inline void expect_own_sort(SelectCase& cache) {
  const SelectParams params = cache.params();
  for (const cpu::Target target : cpu::supported_targets()) {
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

inline void expect_reference(SelectCase& cache) {
  const SelectParams params = cache.params();
  reference::select(params);
  for (int s = 0; s < params.step.count; ++s) {
    for (int h = 0; h < params.step.layout.kv_heads; ++h) {
      const std::vector<int32_t> expected = cache.set_of(s, h);
      for (const cpu::Target target : cpu::supported_targets()) {
        EXPECT_EQ(select_parts(params, s, h, target, 1), expected) << cpu::target_name(target);
      }
    }
  }
}

}  // namespace fasa
