// Launch parameters of a select's kernels (select_inl.h).
#pragma once

#include "kernels/cuda/select/select_head_inl.h"

namespace fasa::cuda {

struct SelectKernel {
  static constexpr int kThreads = 256;

  // Per multiprocessor: about 24 warps hide the memory's latency. Limits registers to 80.
  static constexpr int kResidentBlocks = 3;

  SelectParams params;
  SelectScratch scratch;
  ScorerLayout scorers;
  int score_blocks;  // per head

  // The most shared memory that a launch asks for: 99 KiB on GPUs from 8.0 on, 64 KiB on 7.5.
  static constexpr int64_t max_shared(int compute_capability) {
    return int64_t{compute_capability < 80 ? 64 : 99} << 10;
  }
  static constexpr ScorerLayout scorer_layout(const SelectParams& params, int compute_capability) {
    const ScorerLayout whole = {params.step.together * params.step.layout.gqa_group,
                                params.step.layout.slice.padded_dims(),
                                kThreads / simt::kWarpThreads};
    constexpr int64_t kPlans = 8 * sizeof(SelectPlan);  // at most, see ScoreKernel
    return whole.within(max_shared(compute_capability) - kPlans);
  }
};

}  // namespace fasa::cuda
