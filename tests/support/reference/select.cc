#include "tests/support/reference/select.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/select_plan.h"
#include "tests/support/reference/kernels.h"
#include "tests/support/reference/rows.h"
#include "tests/support/reference/slices.h"

namespace fasa::reference {
namespace {

// The page of a position: its slice as codes, or the tail.
struct SlicePage {
  SliceFormat format;
  const std::byte* data;
  float base;
};

SlicePage page_at(const SelectParams& params, const SequenceDesc& sequence, int kv_head,
                  int position) {
  const CacheLayout& layout = params.step.layout;
  const int page = position / kPageTokens;
  if (page >= sequence.sealed_pages()) {
    return {layout.slice.tail(), sequence.tail + layout.tail_offset(params.step.layer, kv_head), 1};
  }
  const std::byte* block = sequence.slice_blocks[page];
  float base = 1;
  std::memcpy(&base, block + layout.head_index(params.step.layer, kv_head) * 4, sizeof(base));
  return {layout.slice, block + layout.slice_offset(params.step.layer, kv_head), base};
}

// `low_bit`: the low-bit set's positions, in any order.
void write_low_bit(const SelectParams& params, const GroupScores& scores, const SelectPlan& plan,
                   int64_t head, std::vector<int32_t> low_bit) {
  const LowBitSet& out = params.low_bit;
  std::sort(low_bit.begin(), low_bit.end());
  std::copy(low_bit.begin(), low_bit.end(), out.positions + head * out.capacity);
  out.sizes[head] = static_cast<int32_t>(low_bit.size());
  for (int h = 0; h < scores.heads; ++h) {
    float* of_head = out.scores + (head * scores.heads + h) * out.capacity;
    for (size_t i = 0; i < low_bit.size(); ++i) {
      of_head[i] =
          scores.raw[static_cast<size_t>(int64_t{h} * plan.visible() + low_bit[i] - plan.first)];
    }
  }
}

// The scores of all visible tokens, without those of `set`.
void write_low_bit_pages(const SelectParams& params, const GroupScores& scores,
                         const SelectPlan& plan, int64_t head, const std::vector<int32_t>& set) {
  const LowBitPages& out = params.low_bit_pages;
  out.counts[head] = plan.pages();
  for (int h = 0; h < scores.heads; ++h) {
    const float* raw = scores.raw.data() + int64_t{h} * plan.visible() - plan.first;
    const int64_t at = out.at(head * scores.heads + h);
    for (int page = 0; page < plan.pages(); ++page) {
      const int start = (plan.first_page() + page) * kPageTokens;
      const int begin = std::max(start, plan.first);
      const int end = std::min(start + kPageTokens, plan.end);
      const auto is_low_bit = [&](int p) {
        return !std::isinf(raw[p]) && !std::binary_search(set.begin(), set.end(), p);
      };
      float maximum = -std::numeric_limits<float>::infinity();
      for (int p = begin; p < end; ++p) {
        if (is_low_bit(p)) maximum = std::max(maximum, raw[p]);
      }
      out.maxima[at + page] = maximum * out.scale;
      int16_t* codes = out.scores + (at + page) * kPageTokens;
      std::fill_n(codes, kPageTokens, kNoScoreCode);
      for (int p = begin; p < end; ++p) {
        if (!is_low_bit(p)) continue;
        const double distance = (static_cast<double>(raw[p]) - static_cast<double>(maximum)) *
                                static_cast<double>(out.scale * kScoreUnits);
        codes[p - start] = static_cast<int16_t>(
            std::lrint(std::max(distance, static_cast<double>(kLowestScoreCode))));
      }
    }
  }
}

uint64_t select_head(const SelectParams& params, int index, int kv_head, int32_t* set,
                     int32_t* size) {
  const SequenceDesc& sequence = params.step.sequences[index];
  const SelectPlan plan = plan_selection(params, sequence);
  std::vector<int32_t> taken;
  uint64_t nans = 0;
  GroupScores scores;
  if (!plan.is_dense()) {
    scores = group_scores(params, index, kv_head);
    nans = scores.nans;
    std::vector<float> best = relative_scores(scores, plan.visible());
    for (int p = plan.sinks_end; p < plan.recent_begin; ++p) taken.push_back(p);
    std::stable_sort(taken.begin(), taken.end(), [&](int32_t a, int32_t b) {
      return best[static_cast<size_t>(a - plan.first)] > best[static_cast<size_t>(b - plan.first)];
    });
    if (plan.low_bit > 0) {
      write_low_bit(params, scores, plan, int64_t{index} * params.step.layout.kv_heads + kv_head,
                    {taken.begin() + plan.need, taken.begin() + plan.in_both()});
    }
    const RunnersUp& runners_up = params.runners_up;
    const int64_t head = int64_t{index} * params.step.layout.kv_heads + kv_head;
    for (int i = 0; i < plan.runners_up; ++i) {
      runners_up.positions[head * runners_up.capacity + i] =
          taken[static_cast<size_t>(plan.need + i)];
    }
    if (runners_up.capacity > 0) runners_up.sizes[head] = plan.runners_up;
    taken.resize(static_cast<size_t>(plan.need));
    for (int p = plan.first; p < plan.sinks_end; ++p) taken.push_back(p);
    for (int p = plan.recent_begin; p < plan.end; ++p) taken.push_back(p);
  } else {
    for (int p = plan.first; p < plan.end; ++p) taken.push_back(p);
  }
  std::sort(taken.begin(), taken.end());
  std::copy(taken.begin(), taken.end(), set);
  *size = static_cast<int32_t>(taken.size());
  if (params.low_bit_pages.capacity > 0 && !plan.is_dense()) {
    write_low_bit_pages(params, scores, plan,
                        int64_t{index} * params.step.layout.kv_heads + kv_head, taken);
  }
  return nans;
}

}  // namespace

GroupScores group_scores(const SelectParams& params, int index, int kv_head) {
  const CacheLayout& layout = params.step.layout;
  const SequenceDesc& sequence = params.step.sequences[index];
  const SelectPlan plan = plan_selection(params, sequence);
  const int16_t* dims = params.step.slice_dims + kv_head * layout.slice.dims;
  const int scored = layout.slice.prefix(params.score_dims).dims;
  GroupScores scores;
  scores.heads = layout.gqa_group;
  for (int h = 0; h < layout.gqa_group; ++h) {
    const int64_t q = params.q.offset(sequence.first_token, kv_head * layout.gqa_group + h);
    std::vector<double> sums;
    for (int p = plan.first; p < plan.end; ++p) {
      const SlicePage page = page_at(params, sequence, kv_head, p);
      double sum = 0;
      for (int d = 0; d < scored; ++d) {
        sum += static_cast<double>(load_element(params.q.dtype, params.q.data, q + dims[d])) *
               reference::slice_value(page.format, page.data, page.base, d, p % kPageTokens);
      }
      if (params.step.slopes != nullptr) {
        sum += static_cast<double>(params.step.slopes[kv_head * layout.gqa_group + h]) *
               (p - (sequence.end() - 1));
      }
      sums.push_back(sum);
    }
    for (const double sum : sums) {
      auto score = static_cast<float>(soft_capped(sum, params.step.score_cap));
      if (std::isnan(score)) {
        score = -std::numeric_limits<float>::infinity();
        ++scores.nans;
      }
      scores.raw.push_back(std::min(score, std::numeric_limits<float>::max()));
    }
  }
  return scores;
}

std::vector<float> relative_scores(const GroupScores& scores, int visible) {
  std::vector<float> best(static_cast<size_t>(visible), -std::numeric_limits<float>::infinity());
  for (int h = 0; h < scores.heads; ++h) {
    const float* raw = scores.raw.data() + int64_t{h} * visible;
    const float maximum =
        std::max(*std::max_element(raw, raw + visible), std::numeric_limits<float>::lowest());
    for (int t = 0; t < visible; ++t) {
      best[static_cast<size_t>(t)] = std::max(best[static_cast<size_t>(t)], raw[t] - maximum);
    }
  }
  return best;
}

void select(const SelectParams& params) {
  const int kv_heads = params.step.layout.kv_heads;
  for (int s = 0; s < params.step.count; ++s) {
    for (int i = 0; i < params.step.head_count(); ++i) {
      const int h = params.step.first_head() + i;
      const int64_t at = int64_t{s} * kv_heads + h;
      params.selected_sizes[at] = 0;
      if (params.low_bit.capacity > 0) params.low_bit.sizes[at] = 0;
      if (params.low_bit_pages.capacity > 0) params.low_bit_pages.counts[at] = 0;
      if (params.runners_up.capacity > 0) params.runners_up.sizes[at] = 0;
      if (params.step.sequences[s].mode != StepMode::kDecode) continue;
      const uint64_t nans = select_head(params, s, h, params.sets + at * params.selected_capacity,
                                        params.selected_sizes + at);
      if (params.counters == nullptr) continue;
      std::atomic_ref<uint64_t>(params.counters->nan_scores)
          .fetch_add(nans, std::memory_order_relaxed);
    }
  }
}

}  // namespace fasa::reference
