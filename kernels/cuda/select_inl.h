// TIP score and select over many blocks: exact, in one read of the slices, with the results of
// kernels/cpu's.
//
//   sample  a share of the pages is scored
//   bounds  the heads' maxima in the sample (never above the true ones) and a rank among its
//           relative scores give a bound for each query head
//   scan    all pages are scored; tokens with some head at or above its bound survive, with the raw
//           scores of all heads. A new maximum always survives, so the true maxima are known then
//   finish  candidates are compared by the maximum over heads of (raw - true maximum). The set is
//           certain if the last selected candidate is above the maximum over heads of (bound - true
//           maximum), which no other token can exceed: f32 subtraction is monotone
//   rescan  only if the set is uncertain (the sample missed some head's maximum by much): pages are
//           scored again with the true maxima; tokens that reach the last candidate that would have
//           been selected are ranked. If even these exceed the capacity (rows of equal values), the
//           head's last block ranks by reading the slices three more times
//
// Bounds and finish run as one large block per head. In the other kernels several blocks share a
// head's pages; their number does not depend on the context, so the same launch serves any length.
// Candidates beyond the capacity are counted, not dropped: the rescan reads them again.
//
// Kernels pass data only through the scratch memory. Each word is written before it is read, by an
// earlier kernel of the same call (words that blocks add to: by bounds), so nothing is cleared
// first.
#pragma once

#include "kernels/cuda/select_bounds_inl.h"
#include "kernels/cuda/select_finish_inl.h"
#include "kernels/cuda/select_rescan_inl.h"
#include "kernels/cuda/select_sample_inl.h"
#include "kernels/cuda/select_scan_inl.h"

namespace fasa::cuda {

constexpr int kMaxHeadBlocks = 1024;

// As many blocks per head as can run at once over all heads, at least one.
constexpr int head_blocks(int multiprocessors, int64_t heads) {
  const int64_t blocks = int64_t{SelectKernel::kResidentBlocks} * multiprocessors / heads;
  return static_cast<int>(blocks < 1 ? 1 : blocks < kMaxHeadBlocks ? blocks : kMaxHeadBlocks);
}

template <typename Launcher>
void start(const SelectParams& params, const Launcher& launch) {
  const int kv_heads = params.step.head_count();
  const int64_t heads = int64_t{params.step.count} * kv_heads;
  if (heads == 0) return;
  const SelectScratch scratch =
      SelectScratch::of(params.step.layout, params.step.count, ranked_capacity(params));
  const ScorerLayout layout = SelectKernel::scorer_layout(params, launch.compute_capability());
  const int64_t scorers = align_up(layout.bytes());
  constexpr int64_t kRank = sizeof(BlockRank);
  simt::Grid grid = {.x = head_blocks(launch.multiprocessors(), heads),
                     .y = kv_heads,
                     .z = params.step.count,
                     .shared_bytes = scorers};
  simt::Grid sample = grid;
  if (sample.x > SampleKernel::kMaxBlocks) sample.x = SampleKernel::kMaxBlocks;
  const simt::Grid ranking = {.y = grid.y, .z = grid.z, .shared_bytes = kRank};
  simt::Grid rescan = grid;
  rescan.shared_bytes = scorers + kRank;
  launch(SampleKernel{{params, scratch, layout, 0}}, sample);
  launch(BoundsKernel{{params, scratch, layout, 0}}, ranking);
  launch(ScanKernel{{params, scratch, layout, 0}}, grid);
  launch(FinishKernel{{params, scratch, layout, 0}}, ranking);
  launch(RescanKernel{{params, scratch, layout, scorers}}, rescan);
}

}  // namespace fasa::cuda
