// Turns scores of a tile into weights and sums its values, for FAC over rows and over codes.
#pragma once

#include "kernels/cuda/rows_inl.h"
#include "kernels/cuda/softmax_inl.h"
#include "kernels/params.h"

namespace fasa::cuda {

static_assert(kTileTokens == simt::kWarpThreads, "a tile's softmax is one warp's");

// Called by a block of kThreads, one warp per head: scores [heads][kTileTokens] in shared memory,
// of which the first `tokens` count. Writes maximum and sum to each head's partial. A NaN score
// becomes the head's maximum, so that every merge preserves it.
template <int kThreads>
FASA_DEVICE void weigh_scores(float* all_scores, int heads, int tokens, float* partial,
                              int64_t stride) {
  for (int h = simt::warp(); h < heads; h += kThreads / simt::kWarpThreads) {
    float* scores = all_scores + h * kTileTokens;
    const bool valid = simt::lane() < tokens;
    const float score = valid ? scores[simt::lane()] : no_maximum();
    const bool spoilt = simt::ballot(score != score) != 0;
    const float top = spoilt ? __builtin_nanf("") : simt::warp_max(score);
    const float weight = valid && top != no_maximum() ? exponential(score - top) : 0.0f;
    const float sum = simt::warp_sum(weight);
    scores[simt::lane()] = weight;
    if (simt::lane() == 0) {
      partial[h * stride] = top;
      partial[h * stride + 1] = sum;
    }
  }
}

// Then writes each head's sums of values of `dims` dimensions to its partial, two dimensions and
// two heads a thread. value_of(i, pair): a Pair of token i.
template <int kThreads, typename ValueOf>
FASA_DEVICE void sum_weighed(const float* all_weights, int heads, int tokens, int dims,
                             const ValueOf& value_of, float* partial, int64_t stride) {
  constexpr int kHeads = 2;
  const int pairs = (dims + 1) / 2;
  const int blocks = (heads + kHeads - 1) / kHeads;
  for (int item = simt::thread_index(); item < blocks * pairs; item += kThreads) {
    const int pair = item % pairs;
    const int first = item / pairs * kHeads;
    const int second = first + 1 < heads ? first + 1 : first;
    const float* weights[kHeads] = {all_weights + first * kTileTokens,
                                    all_weights + second * kTileTokens};
    Pair sums[kHeads];
    FASA_UNROLL_8
    for (int i = 0; i < tokens; ++i) {
      const Pair value = value_of(i, pair);
      FASA_UNROLL
      for (int h = 0; h < kHeads; ++h) {
        sums[h].low = simt::fused(weights[h][i], value.low, sums[h].low);
        sums[h].high = simt::fused(weights[h][i], value.high, sums[h].high);
      }
    }
    for (int h = 0; h < kHeads && first + h < heads; ++h) {
      float* out = partial + (first + h) * stride + kStateHeader + 2 * pair;
      out[0] = sums[h].low;
      if (2 * pair + 1 < dims) out[1] = sums[h].high;
    }
  }
}

}  // namespace fasa::cuda
