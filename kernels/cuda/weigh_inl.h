// Turns scores of a tile into weights, for FAC over rows and over codes.
#pragma once

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

}  // namespace fasa::cuda
