// TIP score and select over many blocks: exact, in one read of the slices, with the results of
// kernels/cpu's.
//
//   score     all pages are scored by several blocks per head, which store the raw scores, the
//             largest ones of each run of eight tokens, and their own maxima; for all tokens of a
//             sequence that are selected for together, a page is read once
//   finish    one large block per head. The key of a token is the maximum over heads of (raw - the
//             head's maximum), that of a run the largest of its competing tokens'. At least as many
//             tokens as runs reach the key of a run: so the last of the tokens to be ranked is not
//             below the last of as many runs, and only tokens of runs that reach that key are
//             candidates. They are ranked, and the sets are written. If the candidates exceed the
//             capacity (many rows of equal values), all scores are ranked, in more passes
//   take out  for a low-bit set by page: the set's tokens are taken out of the page's scores, by
//             several blocks per head
//
// The number of blocks does not depend on the context, so the same launch serves any length.
// Kernels pass data only through the scratch memory. Each word is written before it is read, by an
// earlier kernel of the same call, so nothing is cleared first.
#pragma once

#include "kernels/cuda/select/select_finish_inl.h"
#include "kernels/cuda/select/select_score_inl.h"
#include "kernels/cuda/select/select_take_out_inl.h"

namespace fasa::cuda {

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
  const ScorerLayout layout = SelectKernel::scorer_layout(params, launch.compute_capability());
  const int blocks = head_blocks(launch.multiprocessors(), heads / params.step.together);
  const SelectKernel common = {params, SelectScratch::of(params), layout, blocks};
  const simt::Grid grid = {.x = 1, .y = kv_heads, .z = params.step.count};
  simt::Grid score = grid, finish = grid, take_out = grid;
  score.x = blocks;
  score.z = params.step.count / params.step.together;
  score.shared_bytes = ScoreKernel::shared_bytes(layout, params.step.together);
  finish.shared_bytes = sizeof(BlockRank);
  take_out.x = TakeOutKernel::kBlocks;
  launch(ScoreKernel{common}, score);
  launch(FinishKernel{common}, finish);
  if (params.low_bit_pages.capacity > 0) launch(TakeOutKernel{common}, take_out);
}

}  // namespace fasa::cuda
