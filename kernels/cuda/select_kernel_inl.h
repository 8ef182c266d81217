// Launch parameters of a select's kernels (select_inl.h).
#pragma once

#include "kernels/cuda/select_head_inl.h"

namespace fasa::cuda {

struct SelectKernel {
  static constexpr int kThreads = 256;

  // Per multiprocessor: about 24 warps hide the memory's latency. Limits registers to 80; the scan
  // then spills 84 bytes on sm_90.
  static constexpr int kResidentBlocks = 3;

  SelectParams params;
  SelectScratch scratch;
  ScorerLayout scorers;
  // Offset in shared memory: after the scorers' if pages are read while ranking, else 0.
  int64_t rank_at;

  // The most shared memory that a launch asks for: 99 KiB on GPUs from 8.0 on, 64 KiB on 7.5.
  static constexpr int64_t max_shared(int compute_capability) {
    return int64_t{compute_capability < 80 ? 64 : 99} << 10;
  }
  static constexpr ScorerLayout scorer_layout(const SelectParams& params, int compute_capability) {
    const ScorerLayout whole = {params.step.layout.gqa_group,
                                params.step.layout.slice.padded_dims(),
                                kThreads / simt::kWarpThreads};
    return whole.within(max_shared(compute_capability) - int64_t{sizeof(BlockRank)});
  }
  FASA_DEVICE BlockRank& rank() const {
    return *reinterpret_cast<BlockRank*>(simt::shared_memory() + rank_at);
  }
  // The sum of `mine` over the block; rank().found_rank must be 0. Ends with a barrier.
  FASA_DEVICE uint32_t block_count(uint32_t mine) const {
    mine = simt::warp_sum(mine);
    if (simt::lane() == 0 && mine > 0) simt::atomic_add(&rank().found_rank, mine);
    simt::sync_block();
    const uint32_t all = rank().found_rank;
    simt::sync_block();
    return all;
  }
};

}  // namespace fasa::cuda
