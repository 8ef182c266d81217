// Common parts of the bodies that attend to a tile of rows.
#pragma once

#include "kernels/cpu/rows/row_math_inl.h"
#include "kernels/softmax_state.h"

namespace fasa::cpu {
namespace {

constexpr int kCacheLine = 64;

// Prefetches bytes [begin, end) of a row into L2. Measured over rows in memory: into L1 is 1.1x
// slower, as streaming data (NTA) 2.3x, without prefetching 1.35x in order and 1.5x at random.
inline void prefetch_lines(const unsigned char* row, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; at += kCacheLine) __builtin_prefetch(row + at, 0, 2);
}

// scores[head * kMaxTileTokens + key] of the sums [head][key].
template <int kHeads, int kSums>
inline void store_scores(const Vec (&sums)[kSums], float scale, float* scores) {
#pragma GCC unroll 4
  for (int i = 0; i < kSums; i += 4) {
    Quad four = reduce_add4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
    four = four * scale;
    if constexpr (kTileKeys == 4) {
      *reinterpret_cast<QuadMem*>(scores + i / 4 * kMaxTileTokens) = four;
    } else {
      for (int j = 0; j < 4 && i + j < kHeads * kTileKeys; ++j) {
        scores[(i + j) / kTileKeys * kMaxTileTokens + (i + j) % kTileKeys] = four[j];
      }
    }
  }
}

}  // namespace
}  // namespace fasa::cpu
