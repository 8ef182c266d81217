// Sums over the threads of a block, and sorting by a block.
#pragma once

#include "kernels/cuda/simt.h"

namespace fasa::cuda {

struct BlockSum {
  uint64_t through;  // of the threads up to and including this one
  uint64_t all;
};

// Over warps: `value` is the same in all threads of a warp. `warp_sums`: shared, one per warp; may
// be reused on return.
FASA_DEVICE BlockSum warps_prefix_sum(uint64_t value, uint64_t* warp_sums) {
  if (simt::lane() == 0) warp_sums[simt::warp()] = value;
  simt::sync_block();
  uint64_t before = 0;
  uint64_t all = 0;
  for (int warp = 0; warp < simt::block_warps(); ++warp) {
    if (warp == simt::warp()) before = all;
    all += warp_sums[warp];
  }
  simt::sync_block();
  return {before + value, all};
}

// `warp_sums` as above.
FASA_DEVICE BlockSum block_prefix_sum(uint64_t value, uint64_t* warp_sums) {
  const uint64_t in_warp = simt::warp_prefix_sum(value);
  const uint64_t whole = simt::shuffle(in_warp, simt::kWarpThreads - 1);
  const BlockSum sum = warps_prefix_sum(whole, warp_sums);
  return {sum.through - whole + in_warp, sum.all};
}

// Sorts keys [count], `stride` apart, ascending, in shared or device memory. Bitonic, in the form
// in which every comparison puts the smaller key first, so that keys beyond the end count as
// infinite. Ends with a barrier.
FASA_DEVICE void block_sort(uint64_t* keys, int stride, int count) {
  const auto order = [&](int low, int high) {
    if (high >= count) return;
    const uint64_t a = keys[int64_t{low} * stride];
    const uint64_t b = keys[int64_t{high} * stride];
    if (a <= b) return;
    keys[int64_t{low} * stride] = b;
    keys[int64_t{high} * stride] = a;
  };
  int bits = 0;
  while ((1 << bits) < count) ++bits;
  const int pairs = (1 << bits) / 2;
  // Merges runs of 2^run into runs of 2^(run + 1): mirrored halves, then halves of halves.
  for (int run = 0; run < bits; ++run) {
    const int run_mask = (1 << run) - 1;
    for (int i = simt::thread_index(); i < pairs; i += simt::block_threads()) {
      const int begin = i >> run << (run + 1);
      const int at = i & run_mask;
      order(begin + at, begin + 2 * run_mask + 1 - at);
    }
    simt::sync_block();
    for (int step = run - 1; step >= 0; --step) {
      const int step_mask = (1 << step) - 1;
      for (int i = simt::thread_index(); i < pairs; i += simt::block_threads()) {
        const int low = (i >> step << (step + 1)) + (i & step_mask);
        order(low, low + step_mask + 1);
      }
      simt::sync_block();
    }
  }
}

}  // namespace fasa::cuda
