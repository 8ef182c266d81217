// The CUDA device's page scorer alone, for tests under the interpreter and on a GPU.
#pragma once

#include "kernels/cuda/select/select_inl.h"

namespace fasa::cuda {

// Scores of all visible tokens of one head, as a select's passes compute them. One block.
struct ScoresKernel : SelectKernel {
  static constexpr const char* kName = "scores";

  int sequence;
  int kv_head;
  float* raw;  // [group][visible]

  FASA_DEVICE void operator()() const {
    const SequenceDesc& desc = params.step.sequences[sequence];
    const SelectPlan plan = plan_selection(params, desc);
    const PageScorer scorer(params, &desc, kv_head, scorers, simt::shared_memory());
    visit_pages(
        scorer, plan.first / kPageTokens, (plan.end - 1) / kPageTokens + 1,
        [&](int page, const float* scores) {
          for (int i = simt::lane(); i < scorer.queries() * kPageTokens; i += simt::kWarpThreads) {
            const int position = page * kPageTokens + i % kPageTokens;
            if (position < plan.first || position >= plan.end) continue;
            int nans = 0;
            raw[i / kPageTokens * plan.visible() + position - plan.first] =
                finite_score(scores[i / kPageTokens * kScoreStride + i % kPageTokens], &nans);
          }
        });
  }
};

}  // namespace fasa::cuda
