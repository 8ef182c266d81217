// Shared memory of a block's scorers (page_scorer_inl.h).
//
// Lanes that read at the same time must use different banks, 16 bytes per lane: so queries and
// weights are permuted by a few bits of their index (ScorerBanks), and the scores of heads are
// kScoreStride apart. tests/simt/banks_test.cc counts the conflicts.
#pragma once

#include "kernels/cuda/simt.h"
#include "kernels/layout.h"

namespace fasa::cuda {

inline constexpr int kMmaHeads = 8;                   // query heads per product
inline constexpr int kScoreStride = kPageTokens + 4;  // floats from a head's scores to the next's

// Indices in shared memory such that lanes reading at the same time cause no bank conflict: a
// permutation within aligned blocks, which needs no extra memory.
struct ScorerBanks {
  // Index of float `at` of the queries (head * stride + dimension in slice order). Eight adjacent
  // words, or four of two heads, are read at the same time, four floats of each.
  FASA_DEVICE static constexpr int query(int at) { return at ^ ((at >> 5 & 3) << 2); }

  // Index of a vector of a word's weights: 16 bytes, of which a word of int2 has two, int4 one; 8
  // bytes in int8. Four words of two heads (int8: four heads) are read at the same time.
  template <int kBits>
  FASA_DEVICE static constexpr int weights(int vector) {
    if constexpr (kBits == 2) {
      return vector ^ ((vector >> 3 ^ vector >> 4) & 1);
    } else if constexpr (kBits == 4) {
      return vector ^ ((vector >> 3 ^ vector >> 4) & 1) << 2;
    } else {
      return vector ^ ((vector >> 4 ^ vector >> 5) & 3) << 2;
    }
  }
};

// Layout of the shared memory of a block's scorers, in floats from its start:
//   query [queries][stride] in slice order, unscale [queries], eighths [64], then for each warp
//   scores [queries][kScoreStride], weights [heads][padded dims / 2] (pairs of f16), offsets
//   [heads][groups], maxima [queries]
struct ScorerLayout {
  int queries = 1;  // query heads, of all tokens that are scored together
  int padded = 0;   // dimensions of the slice
  int warps = 1;    // that score: with wide or many heads, not all warps of a block fit

  constexpr static int64_t round(int64_t floats) { return (floats + 15) / 16 * 16; }
  constexpr int stride() const { return static_cast<int>(round(padded)); }
  constexpr int heads() const { return queries < kMmaHeads ? queries : kMmaHeads; }
  constexpr int64_t unscale_at() const { return int64_t{queries} * stride(); }
  constexpr int64_t eighths_at() const { return unscale_at() + round(queries + 1); }
  constexpr int64_t warps_at() const { return eighths_at() + 64; }
  constexpr int64_t weights_at() const { return int64_t{queries} * kScoreStride; }
  // Rounded up to whole blocks of ScorerBanks' permutation.
  constexpr int64_t weight_words() const { return align_up(int64_t{heads()} * padded / 2, 32); }
  constexpr int64_t offsets_at() const { return weights_at() + weight_words(); }
  constexpr int64_t maxima_at() const { return offsets_at() + int64_t{heads()} * padded / 4; }
  constexpr int64_t warp_floats() const { return round(maxima_at() + queries); }
  constexpr int64_t bytes() const {
    return (warps_at() + warps * warp_floats()) * int64_t{sizeof(float)};
  }
  // The layout with as many warps as fit into max_bytes, at least one.
  constexpr ScorerLayout within(int64_t max_bytes) const {
    ScorerLayout fitting = *this;
    while (fitting.warps > 1 && fitting.bytes() > max_bytes) --fitting.warps;
    return fitting;
  }
};

}  // namespace fasa::cuda
