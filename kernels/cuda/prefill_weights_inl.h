// Scores of sixteen queries of a warp on a tile of keys, and the weights that they become by an
// online softmax: a prefill on tensor cores. As in a product's result (mma_inl.h), a thread has two
// rows, lane / 4 and the one eight below, each of them with its quad of lanes.
#pragma once

#include "kernels/cuda/softmax_inl.h"

namespace fasa::cuda {

// What a row has added up. Maxima are in units of the weights' exponent, base 2.
struct PrefillSums {
  float top[2];
  float sum[2];
};

template <int kKeys>
struct PrefillWeights {
  static constexpr int kGroups = kKeys / 8;  // of keys, one product wide

  float at[kGroups][4];

  // Slot of element `i` of a group.
  FASA_DEVICE static int slot_of(int group, int i) { return group * 8 + simt::lane() % 4 * 2 + i; }

  // Calls visit(slot, score) for one row.
  template <typename Visit>
  FASA_DEVICE void for_row(int half, const Visit& visit) {
    FASA_UNROLL
    for (int n = 0; n < kGroups; ++n) {
      visit(slot_of(n, 0), at[n][2 * half]);
      visit(slot_of(n, 1), at[n][2 * half + 1]);
    }
  }

  FASA_DEVICE void scale(const float* scales) {
    for (int half = 0; half < 2; ++half) {
      for_row(half, [&](int slot, float& score) { score *= scales[slot]; });
    }
  }
  // ALiBi's term. `query`: the query's slot, which may be in a later tile.
  FASA_DEVICE void add_slope(int half, float slope, int query) {
    for_row(half, [&](int slot, float& score) {
      score = simt::fused(slope, static_cast<float>(slot - query), score);
    });
  }
  FASA_DEVICE void cap(int half, float limit) {
    for_row(half, [&](int, float& score) { score = soft_capped(score, limit); });
  }
  // The row sees slots [begin, end).
  FASA_DEVICE void hide(int half, int begin, int end) {
    for_row(half, [&](int slot, float& score) {
      score = slot >= begin && slot < end ? score : no_maximum();
    });
  }

  // Turns scores into weights. `scale`: of scores, for base 2. Returns true if factors[] must
  // scale what the rows have added up before; otherwise they are 1. A score that is NaN is ignored
  // by the maximum and makes the sum NaN.
  FASA_DEVICE bool weigh(float scale, PrefillSums& sums, float (&factors)[2]) {
    float tops[2] = {no_maximum(), no_maximum()};
    FASA_UNROLL
    for (int half = 0; half < 2; ++half) {
      for_row(half, [&](int, float& score) { tops[half] = maximum(tops[half], score); });
    }
    FASA_UNROLL
    for (int lanes = 1; lanes <= 2; lanes *= 2) {
      tops[0] = maximum(tops[0], simt::shuffle_xor(tops[0], lanes));
      tops[1] = maximum(tops[1], simt::shuffle_xor(tops[1], lanes));
    }
    float added[2] = {};
    FASA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float before = sums.top[half];
      tops[half] = maximum(before, tops[half] * scale);
      const float base = tops[half] == no_maximum() ? 0.0f : tops[half];
      factors[half] = power_of_2(before - base);
      for_row(half, [&](int, float& score) {
        score = power_of_2(simt::fused(score, scale, -base));
        added[half] += score;
      });
    }
    FASA_UNROLL
    for (int lanes = 1; lanes <= 2; lanes *= 2) {
      added[0] += simt::shuffle_xor(added[0], lanes);
      added[1] += simt::shuffle_xor(added[1], lanes);
    }
    const bool rises = tops[0] != sums.top[0] || tops[1] != sums.top[1];
    FASA_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (tops[half] == sums.top[half]) factors[half] = 1.0f;
      sums.sum[half] = sums.sum[half] * factors[half] + added[half];
      sums.top[half] = tops[half];
    }
    return simt::ballot(rises) != 0;
  }
};

}  // namespace fasa::cuda
