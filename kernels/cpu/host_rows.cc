#include "kernels/host_rows.h"

#include <algorithm>

#include "kernels/cpu/page_scorer.h"
#include "kernels/cpu/row_bodies.h"

namespace fasa {

ExpandRow expand_row(RowDType dtype) { return cpu::row_bodies(cpu::active_target()).expand[dtype]; }

void score_slices(const SelectParams& params, int sequence, int kv_head, int first, int end,
                  float* const* scores) {
  thread_local cpu::PageScorer scorer;
  thread_local cpu::PageScratch scratch;
  thread_local cpu::ScratchArray<float> page_scores;
  scorer.begin(params, sequence, kv_head, first, cpu::score_bodies(cpu::active_target()));
  scratch.begin(params.step.layout);
  const int group = params.step.layout.gqa_group;
  float* all = page_scores.reserve(static_cast<size_t>(group) * kPageTokens);
  for (int page = first / kPageTokens; page * kPageTokens < end; ++page) {
    scorer.score(page, nullptr, &scratch, all);
    const int from = std::max(first, page * kPageTokens);
    const int count = std::min(end, (page + 1) * kPageTokens) - from;
    for (int h = 0; h < group; ++h) {
      if (scores[h] == nullptr) continue;
      std::copy_n(all + h * kPageTokens + from % kPageTokens, count, scores[h] + (from - first));
    }
  }
}

}  // namespace fasa
