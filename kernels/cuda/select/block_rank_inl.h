// Exact ranks of keys within one block of 32 to 1024 threads, a power of two. Keys are read as
// often as needed and never stored: a radix search (three histograms, one per digit) finds the key
// of a rank, then the positions that reach it are written in order.
//
// Keys come from a functor `each(visit)`: every thread of the block calls it, and together they
// call visit(key, at) once for every key, in any order; at() returns its position and is called
// only if needed. Keys are unsigned, larger is better; equal keys are ranked by position, lower
// first.
#pragma once

#include "kernels/cuda/block_sum_inl.h"
#include "kernels/cuda/simt.h"

namespace fasa::cuda {

struct BlockRank {
  static constexpr int kBins = 2048;
  static constexpr int kWindow = 1 << 16;  // positions that are ordered at a time
  static constexpr int kWindowWords = kWindow / 32;

  static constexpr int kSorted = kWindowWords;  // positions; up to this many are sorted instead
  static constexpr int kMaxHeads = 256;         // more than cuda_holds_queries() allows

  struct Window {
    uint32_t above[kWindowWords];  // a bit for each position
    uint32_t ties[kWindowWords];
  };
  uint32_t bins[kBins];
  union {
    Window window;
    uint64_t sorted[kSorted];
  };
  uint64_t warp_sums[simt::kWarpThreads];
  float maxima[kMaxHeads];  // of a GQA group's scores
  uint32_t found_bin;
  uint32_t found_rank;
};

// The last selected key, and how many keys equal to it are selected.
struct RankedKey {
  uint32_t key;
  int32_t ties;
};

// Finds the bin that holds the `rank`-th largest key, and the key's rank in it.
FASA_DEVICE void find_bin(BlockRank& shared, uint32_t rank) {
  const int each = BlockRank::kBins / simt::block_threads();
  const int top = BlockRank::kBins - 1 - simt::thread_index() * each;
  uint32_t sum = 0;
  for (int i = 0; i < each; ++i) sum += shared.bins[top - i];
  uint32_t before = static_cast<uint32_t>(block_prefix_sum(sum, shared.warp_sums).through) - sum;
  if (before < rank && rank <= before + sum) {  // true in one thread
    int bin = top;
    while (before + shared.bins[bin] < rank) before += shared.bins[bin--];
    shared.found_bin = static_cast<uint32_t>(bin);
    shared.found_rank = rank - before;
  }
  simt::sync_block();
}

// At least `rank` keys must exist, rank >= 1. The search ignores bits of the key below `min_bit` (0
// or 10): the result is then at most 2^min_bit too low, and `ties` counts more than equal keys.
template <typename Each>
FASA_DEVICE RankedKey key_of_rank(BlockRank& shared, uint32_t rank, const Each& each,
                                  int min_bit = 0) {
  uint32_t prefix = 0;
  uint32_t known = 0;  // bits of the prefix
  FASA_NO_UNROLL       // long code
      for (int shift = 21; shift >= 0; shift -= shift == 21 ? 11 : 10) {
    if (shift < min_bit) break;
    const uint32_t digit = shift == 0 ? 0x3ffu : 0x7ffu;
    for (int i = simt::thread_index(); i < BlockRank::kBins; i += simt::block_threads()) {
      shared.bins[i] = 0;
    }
    simt::sync_block();
    each([&](uint32_t key, const auto&) {
      if ((key & known) == prefix) simt::atomic_add(&shared.bins[key >> shift & digit], 1u);
    });
    simt::sync_block();
    find_bin(shared, rank);
    prefix |= shared.found_bin << shift;
    known |= digit << shift;
    rank = shared.found_rank;
    simt::sync_block();
  }
  return {prefix, static_cast<int32_t>(rank)};
}

// Writes one window's positions to `out`; returns the number of positions in `out` so far.
FASA_DEVICE int32_t emit_window(BlockRank& shared, int window, int32_t quota, int32_t* ties_before,
                                int32_t* out) {
  const int each = BlockRank::kWindowWords / simt::block_threads();
  const int first = simt::thread_index() * each;
  uint64_t counts = 0;  // above, and ties in the low half
  for (int i = first; i < first + each; ++i) {
    counts += static_cast<uint64_t>(simt::count_bits(shared.window.above[i])) << 32 |
              static_cast<uint64_t>(simt::count_bits(shared.window.ties[i]));
  }
  const BlockSum sums = block_prefix_sum(counts, shared.warp_sums);
  const uint64_t before = sums.through - counts;
  auto above = static_cast<int32_t>(before >> 32);
  int32_t ties = *ties_before + static_cast<int32_t>(before & 0xffffffffu);
  const int32_t taken_before = *ties_before < quota ? *ties_before : quota;
  for (int i = first; i < first + each; ++i) {
    uint32_t left = shared.window.above[i] | shared.window.ties[i];
    for (; left != 0; left &= left - 1) {
      const int bit = simt::lowest_bit(left);
      const bool tie = (shared.window.ties[i] >> bit & 1) != 0;
      const int32_t at = above + (ties < quota ? ties : quota) - taken_before;
      if (!tie || ties < quota) out[at] = window + i * 32 + bit;
      above += tie ? 0 : 1;
      ties += tie ? 1 : 0;
    }
  }
  const int32_t ties_after = *ties_before + static_cast<int32_t>(sums.all & 0xffffffffu);
  const int32_t written = static_cast<int32_t>(sums.all >> 32) +
                          (ties_after < quota ? ties_after : quota) - taken_before;
  *ties_before = ties_after;
  simt::sync_block();
  return written;
}

// As emit_ranked() below, for at most kSorted positions: one pass over the keys and a sort, instead
// of a pass per window. Returns false, and writes nothing, if only some of the keys equal to the
// last one are selected.
template <typename Each>
FASA_DEVICE bool emit_sorted(BlockRank& shared, RankedKey last, int32_t need, const Each& each,
                             int32_t* out) {
  if (simt::thread_index() == 0) shared.found_rank = 0;
  simt::sync_block();
  each([&](uint32_t key, const auto& position) {
    if (key < last.key) return;
    const uint32_t at = simt::atomic_add(&shared.found_rank, 1u);
    if (at < BlockRank::kSorted) shared.sorted[at] = static_cast<uint64_t>(position());
  });
  simt::sync_block();
  const bool complete = shared.found_rank == static_cast<uint32_t>(need);
  if (complete) {
    block_sort(shared.sorted, 1, need);
    for (int i = simt::thread_index(); i < need; i += simt::block_threads()) {
      out[i] = static_cast<int32_t>(shared.sorted[i]);
    }
  }
  simt::sync_block();
  return complete;
}

// Writes the positions in [begin, end) of keys above `last.key`, and of the first `last.ties` keys
// equal to it, ascending. `each(visit, first, end)` may skip positions outside [first, end).
template <typename EachWithin>
FASA_DEVICE void emit_ranked(BlockRank& shared, RankedKey last, int begin, int end,
                             const EachWithin& each, int32_t* out) {
  int32_t ties = 0;
  for (int window = begin; window < end; window += BlockRank::kWindow) {
    for (int i = simt::thread_index(); i < BlockRank::kWindowWords; i += simt::block_threads()) {
      shared.window.above[i] = 0;
      shared.window.ties[i] = 0;
    }
    simt::sync_block();
    const int window_end = end - window < BlockRank::kWindow ? end : window + BlockRank::kWindow;
    each(
        [&](uint32_t key, const auto& position) {
          if (key < last.key) return;
          const int at = position() - window;
          if (at < 0 || at >= window_end - window) return;
          uint32_t* words = key == last.key ? shared.window.ties : shared.window.above;
          simt::atomic_or(&words[at / 32], 1u << (at % 32));
        },
        window, window_end);
    simt::sync_block();
    out += emit_window(shared, window, last.ties, &ties, out);
  }
}

}  // namespace fasa::cuda
