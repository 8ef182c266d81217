// FAC on coded rows: integer products where uncoded rows use floats. Included by row_attend_inl.h.
#pragma once

#include "kernels/cpu/rows/row_tile_inl.h"

namespace fasa::cpu {
namespace {

// Integer dot products of kTileKeys coded rows with kHeads 16-bit queries. Only the query is
// rounded, by 2^-16 of its largest element. scores[head * kMaxTileTokens + key], times the task's
// scale, without the scales of key and query.
template <int kHeads>
inline void score_codes(const TileTask& task, int head,
                        const unsigned char* const (&rows)[kTileKeys], float* scores) {
  constexpr int kSums = (kHeads * kTileKeys + 3) / 4 * 4;
  Bits sums[kSums] = {};  // [head][key]
  const int64_t stride = (task.key_dim + kPadCodes - 1) / kPadCodes * kPadCodes;
  const int16_t* q = task.q_codes + head * stride;
  for (int at = 0; at < task.key_dim; at += kCodeLanes) {
    const int left = task.key_dim - at;
    Codes keys[kTileKeys];
#pragma GCC unroll 4
    for (int t = 0; t < kTileKeys; ++t) {
      keys[t] = left >= kCodeLanes ? load_codes(rows[t] + at) : load_codes_part(rows[t] + at, left);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Codes query = load_int16(q + h * stride + at);
#pragma GCC unroll 4
      for (int t = 0; t < kTileKeys; ++t) {
        sums[h * kTileKeys + t] = dot_codes(sums[h * kTileKeys + t], query, keys[t]);
      }
    }
  }
  Vec floats[kSums];
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) floats[i] = floats_of(sums[i]);
  store_scores<kHeads>(floats, task.scale, scores);
}

// Scales of a tile's coded keys or values, 1 beyond the tile: four rows at a time.
inline void find_scales(const TileTask& task, int64_t offset, int dim, float* scales) {
  alignas(64) unsigned bits[kMaxTileTokens];
  int t = 0;
  for (; t + 4 <= task.tokens; t += 4) parities4(task.rows + t, offset, dim, bits + t);
  for (; t < task.tokens; ++t) bits[t] = parities(task.rows[t] + offset, dim);
  constexpr unsigned kOne = 0x3f80u;
  for (; t < kMaxTileTokens; ++t) bits[t] = kOne;
  for (t = 0; t < kMaxTileTokens; t += kLanes) {
    store(scales + t, (Vec)((Bits)load(reinterpret_cast<const float*>(bits + t)) << 16));
  }
}

// Scales of a tile's coded rows.
struct TileScales {
  alignas(64) float keys[kMaxTileTokens];
  alignas(64) float values[kMaxTileTokens];
};

inline void multiply_tile(const float* scales, float factor, float* values) {
  for (int t = 0; t < kMaxTileTokens; t += kLanes) {
    store(values + t, load(values + t) * (load(scales + t) * factor));
  }
}

// Weights of a tile, times the scales of the values, as 16-bit codes with a factor per head.
template <int kHeads>
struct WeightCodes {
  alignas(64) int16_t of[kHeads][kMaxTileTokens];
  float factors[kHeads];
};

// Returns false if some are NaN or too small: then floats are used.
template <int kHeads>
inline bool code_weights(const float* weights, WeightCodes<kHeads>* coded) {
  constexpr float kMax = 32767;
  constexpr float kMin = 0x1p-100f;
  constexpr float kFinite = 0x1p127f;
  const Vec shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  for (int h = 0; h < kHeads; ++h, weights += kMaxTileTokens) {
    Vec top = load(weights), sum = top;
    for (int t = kLanes; t < kMaxTileTokens; t += kLanes) {
      top = max_of(top, load(weights + t));
      sum = sum + load(weights + t);
    }
    const float largest = reduce_max(top);
    if (!(reduce_add(sum) < kFinite && largest >= kMin)) return false;  // also false for NaN
    coded->factors[h] = largest / kMax;
    const Vec inverse = splat(kMax / largest);
    for (int t = 0; t < kMaxTileTokens; t += kLanes) {
      const Vec places = load(weights + t) * inverse;
      store_int16(coded->of[h] + t, (Bits)(places + shifter) - (Bits)shifter);
    }
  }
  return true;
}

// Integer sums of a block of the values, two tokens at a time: half of the product instructions,
// and codes are widened only once. kPart: fewer dimensions than a block.
template <int kHeads, bool kPart>
inline void sum_codes(const TileTask& task, int head, int at, const WeightCodes<kHeads>& weights) {
  constexpr int kBlock = kPairVectors * kLanes;
  Bits sums[kHeads][kPairVectors] = {};
  const int64_t offset = task.key_bytes + at;
  const int count = task.value_dim - at;
  const int64_t end = count > kBlock ? offset + kBlock : task.row_bytes;
  for (int t = 0; t < task.tokens; t += 2) {
    const int other = t + 1 < task.tokens ? t + 1 : t;  // its weight is 0 then
    if (head == 0) {
      if (t < task.next_tokens) prefetch_lines(task.next_rows[t], offset, end);
      if (t + 1 < task.next_tokens) prefetch_lines(task.next_rows[t + 1], offset, end);
    }
    Codes pairs[kPairVectors];
    if constexpr (kPart) {
      unsigned char padded[2][kBlock] = {};
      for (int i = 0; i < count; ++i) padded[0][i] = task.rows[t][offset + i];
      for (int i = 0; i < count; ++i) padded[1][i] = task.rows[other][offset + i];
      load_code_pairs(padded[0], padded[1], pairs);
    } else {
      load_code_pairs(task.rows[t] + offset, task.rows[other] + offset, pairs);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Codes weight = splat_pair(weights.of[h] + t);
#pragma GCC unroll 4
      for (int v = 0; v < kPairVectors; ++v) {
        sums[h][v] = dot_codes(sums[h][v], weight, pairs[v]);
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    Vec floats[kPairVectors];
    for (int v = 0; v < kPairVectors; ++v) floats[v] = floats_of(sums[h][v]) * weights.factors[h];
    float* out = task.partials + (head + h) * task.partial_stride + kSoftmaxHeader + at;
    if constexpr (kPart) {
      float padded[kBlock];
      store_pair_sums(floats, padded);
      for (int i = 0; i < count; ++i) out[i] = padded[i];
    } else {
      store_pair_sums(floats, out);
    }
  }
}

template <int kHeads>
inline void sum_coded_values(const TileTask& task, int head, const WeightCodes<kHeads>& weights) {
  constexpr int kBlock = kPairVectors * kLanes;
  int at = 0;
  for (; at + kBlock <= task.value_dim; at += kBlock) {
    sum_codes<kHeads, false>(task, head, at, weights);
  }
  if (at < task.value_dim) sum_codes<kHeads, true>(task, head, at, weights);
}

}  // namespace
}  // namespace fasa::cpu
