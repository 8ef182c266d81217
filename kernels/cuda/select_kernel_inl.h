// What the kernels of a select (select_inl.h) are launched with.
#pragma once

#include "kernels/cuda/select_head_inl.h"

namespace fasa::cuda {

struct SelectKernel {
  static constexpr int kThreads = kSelectThreads;

  // Of a multiprocessor: the memory's latency takes about 24 warps. Bounds registers to 80, for
  // which the scan spills 120 bytes on sm_90.
  static constexpr int kResidentBlocks = 3;

  SelectParams params;
  SelectScratch scratch;
  ScorerLayout scorers;
  // In shared memory: in place of the scorers', or behind it where pages are read while ranking.
  int64_t rank_at;

  // What a launch asks for at most: every GPU of 8.0 and newer, before that of 7.5.
  static constexpr int64_t most_shared(int compute_capability) {
    return int64_t{compute_capability < 80 ? 64 : 99} << 10;
  }
  static constexpr ScorerLayout scorer_layout(const SelectParams& params, int compute_capability) {
    const ScorerLayout whole = {params.step.layout.group, params.step.layout.slice.padded_dims(),
                                kThreads / simt::kWarpThreads};
    return whole.within(most_shared(compute_capability) - int64_t{sizeof(BlockRank)});
  }
  FASA_DEVICE BlockRank& rank() const {
    return *reinterpret_cast<BlockRank*>(simt::shared_memory() + rank_at);
  }
};

}  // namespace fasa::cuda
