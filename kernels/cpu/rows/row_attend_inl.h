// FAC over one tile. Meanwhile the next tile's rows are prefetched: keys while keys are scored,
// values while values are summed. All at once would fill the core's miss buffers and stall it. The
// heads of a GQA group are processed in blocks of up to four over the same rows: a tile's rows (16
// KiB at head_dim 128 in bf16) are read from memory once and stay in L1 for the other blocks. Each
// (head, token) pair is computed in the same order in every block size.
#pragma once

#include "kernels/cpu/rows/row_attend_codes_inl.h"

namespace fasa::cpu {
namespace {

constexpr int kHeadBlock = 4;

// Dot products of kTileKeys rows with kHeads queries, scaled: scores[head * kMaxTileTokens + key].
template <RowType kType, int kHeads>
inline void score_keys(const TileTask& task, int head,
                       const unsigned char* const (&rows)[kTileKeys], float* scores) {
  constexpr int kSums = (kHeads * kTileKeys + 3) / 4 * 4;
  Vec sums[kSums] = {};  // [head][key]
  const float* q = task.q + head * task.q_stride;
  const int whole = task.key_dim / kLanes * kLanes;
  const auto accumulate = [&](const Vec(&keys)[kTileKeys], int at) {
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Vec query = load(q + h * task.q_stride + at);
#pragma GCC unroll 4
      for (int t = 0; t < kTileKeys; ++t) {
        sums[h * kTileKeys + t] = fma(query, keys[t], sums[h * kTileKeys + t]);
      }
    }
  };
  Vec keys[kTileKeys];
  for (int at = 0; at < whole; at += kLanes) {
#pragma GCC unroll 4
    for (int t = 0; t < kTileKeys; ++t) {
      keys[t] = load_row<kType>(rows[t] + at * kElementBytes<kType>);
    }
    accumulate(keys, at);
  }
  if (whole < task.key_dim) {
    for (int t = 0; t < kTileKeys; ++t) {
      keys[t] = load_row_part<kType>(rows[t] + whole * kElementBytes<kType>, task.key_dim - whole);
    }
    accumulate(keys, whole);
  }
  store_scores<kHeads>(sums, task.scale, scores);
}

#ifdef FASA_BF16_DOT
// The same for bf16 keys and queries: 32 products per instruction, without widening keys.
template <int kHeads>
inline void score_bf16_keys(const TileTask& task, int head,
                            const unsigned char* const (&rows)[kTileKeys], float* scores) {
  Vec sums[kHeads * kTileKeys] = {};  // [head][key]
  const int64_t stride = (task.key_dim + kPadBf16 - 1) / kPadBf16 * kPadBf16;
  const uint16_t* q = task.q_bf16 + head * stride;
  for (int at = 0; at < task.key_dim; at += kBf16Lanes) {
    const int left = task.key_dim - at;
    Bf16Vec keys[kTileKeys];
#pragma GCC unroll 4
    for (int t = 0; t < kTileKeys; ++t) {
      keys[t] = left >= kBf16Lanes ? load_bf16_pairs(rows[t] + at * 2)
                                   : load_bf16_pairs_part(rows[t] + at * 2, left);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Bf16Vec query = load_bf16_pairs(q + h * stride + at);
#pragma GCC unroll 4
      for (int t = 0; t < kTileKeys; ++t) {
        sums[h * kTileKeys + t] = dot_bf16(sums[h * kTileKeys + t], query, keys[t]);
      }
    }
  }
  store_scores<kHeads>(sums, task.scale, scores);
}
#endif

// Scores [head][kMaxTileTokens] of all tokens, -inf beyond.
template <RowType kType, int kHeads>
inline void score_tile(const TileTask& task, int head, float* scores) {
  for (int t = 0; t < task.tokens; t += kTileKeys) {
    const unsigned char* rows[kTileKeys];
#pragma GCC unroll 4
    for (int i = 0; i < kTileKeys; ++i) {
      // Beyond the end the last row is scored again by the same code, so there is one order of
      // sums.
      rows[i] = task.rows[t + i < task.tokens ? t + i : task.tokens - 1];
      if (head == 0 && t + i < task.next_tokens) {
        prefetch_lines(task.next_rows[t + i], 0, task.key_bytes);
      }
    }
#ifdef FASA_BF16_DOT
    if constexpr (kType == kRowBF16) {
      if (task.q_bf16 != nullptr) {
        score_bf16_keys<kHeads>(task, head, rows, scores + t);
        continue;
      }
    }
#endif
    if constexpr (kIsCoded<kType>) {
      score_codes<kHeads>(task, head, rows, scores + t);
    } else {
      score_keys<kType, kHeads>(task, head, rows, scores + t);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int t = task.tokens; t < kMaxTileTokens; ++t) {
      scores[h * kMaxTileTokens + t] = minus_infinity();
    }
  }
}

// Separate from the scoring, which uses all registers.
inline void add_slope(float slope, const float* distances, float* scores) {
  for (int t = 0; t < kMaxTileTokens; t += kLanes) {
    store(scores + t, load(scores + t) + splat(slope) * load(distances + t));
  }
}

// Absent tokens keep their -inf.
inline void cap_tile(const TileTask& task, float* scores) {
  for (int t = 0; t < kMaxTileTokens; t += kLanes) {
    store(scores + t, soft_capped(load(scores + t), task.score_cap));
  }
  for (int t = task.tokens; t < kMaxTileTokens; ++t) scores[t] = minus_infinity();
}

// Turns scores into weights; max and sum go to the head's partial.
inline void weigh_tile(float* scores, float* partial) {
  Vec top = load(scores);
  for (int t = kLanes; t < kMaxTileTokens; t += kLanes) top = max_of(top, load(scores + t));
  const float max = reduce_max(top);
  const float offset = max == minus_infinity() ? 0.0f : max;
  Vec sum = {};
  for (int t = 0; t < kMaxTileTokens; t += kLanes) {
    const Vec weights = exp_of(load(scores + t) - splat(offset));
    sum = sum + weights;
    store(scores + t, weights);
  }
  partial[0] = max;
  partial[1] = reduce_add(sum);
}

// kVectors registers of the values' sums, at value dimension `at`. Each pass prefetches its own
// part of the next rows: prefetching all in the first pass idles memory in the second, and full
// attention reaches 0.71 of the read bandwidth instead of 0.80 (two Zen 4 cores).
template <RowType kType, int kHeads, int kVectors>
inline void sum_values(const TileTask& task, int head, int at, const float* weights) {
  Vec sums[kHeads][kVectors] = {};
  const int64_t offset = task.key_bytes + at * kElementBytes<kType>;
  constexpr int64_t kBytes = kVectors * kLanes * kElementBytes<kType>;
  const int64_t end = at + kVectors * kLanes < task.value_dim ? offset + kBytes : task.row_bytes;
  for (int t = 0; t < task.tokens; ++t) {
    const unsigned char* row = task.rows[t] + offset;
    if (head == 0 && t < task.next_tokens) prefetch_lines(task.next_rows[t], offset, end);
    Vec values[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      values[v] = load_row<kType>(row + v * kLanes * kElementBytes<kType>);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const Vec weight = splat(weights[h * kMaxTileTokens + t]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[h][v] = fma(weight, values[v], sums[h][v]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    float* out = task.partials + (head + h) * task.partial_stride + kSoftmaxHeader + at;
    for (int v = 0; v < kVectors; ++v) store(out + v * kLanes, sums[h][v]);
  }
}

// The last value_dim % kLanes dimensions.
template <RowType kType, int kHeads>
inline void sum_value_rest(const TileTask& task, int head, int at, const float* weights) {
  Vec sums[kHeads] = {};
  const int64_t offset = task.key_bytes + at * kElementBytes<kType>;
  const int count = task.value_dim - at;
  for (int t = 0; t < task.tokens; ++t) {
    const Vec values = load_row_part<kType>(task.rows[t] + offset, count);
    for (int h = 0; h < kHeads; ++h) {
      sums[h] = fma(splat(weights[h * kMaxTileTokens + t]), values, sums[h]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    float* out = task.partials + (head + h) * task.partial_stride + kSoftmaxHeader + at;
    for (int i = 0; i < count; ++i) out[i] = sums[h][i];
  }
}

template <RowType kType, int kHeads>
inline void attend_heads(const TileTask& task, TileScales& scales, int head) {
  alignas(64) float scores[kHeads * kMaxTileTokens];
  score_tile<kType, kHeads>(task, head, scores);
  if (kIsCoded<kType> && head == 0) {
    find_scales(task, 0, task.key_dim, scales.keys);
    // Not earlier: the last values were prefetched only when the previous tile ended.
    find_scales(task, task.key_bytes, task.value_dim, scales.values);
  }
  for (int h = 0; h < kHeads; ++h) {
    float* const of_head = scores + h * kMaxTileTokens;
    if constexpr (kIsCoded<kType>) multiply_tile(scales.keys, task.q_scales[head + h], of_head);
    if (task.slopes != nullptr) {
      add_slope(task.scale * task.slopes[head + h], task.distances, of_head);
    }
    if (task.score_cap > 0) cap_tile(task, of_head);
    weigh_tile(of_head, task.partials + (head + h) * task.partial_stride);
    if constexpr (kIsCoded<kType>) multiply_tile(scales.values, 1.0f, of_head);
  }
  if constexpr (kIsCoded<kType>) {
    WeightCodes<kHeads> coded;
    if (code_weights(scores, &coded)) return sum_coded_values(task, head, coded);
  }
  constexpr int kVectors = kTileKeys;  // as many accumulators as for the scores
  int at = 0;
  for (; at + kVectors * kLanes <= task.value_dim; at += kVectors * kLanes) {
    sum_values<kType, kHeads, kVectors>(task, head, at, scores);
  }
  for (; at + kLanes <= task.value_dim; at += kLanes) {
    sum_values<kType, kHeads, 1>(task, head, at, scores);
  }
  if (at < task.value_dim) sum_value_rest<kType, kHeads>(task, head, at, scores);
}

template <RowType kType>
void attend_tile(const TileTask& task) {
  TileScales scales;
  int head = 0;
  for (; head + kHeadBlock <= task.group; head += kHeadBlock) {
    attend_heads<kType, 4>(task, scales, head);
  }
  switch (task.group - head) {
    case 3:
      return attend_heads<kType, 3>(task, scales, head);
    case 2:
      return attend_heads<kType, 2>(task, scales, head);
    case 1:
      return attend_heads<kType, 1>(task, scales, head);
    default:
      return;
  }
}

void merge(float* state, const float* partial, int value_dim) {
  merge_softmax(state, partial, value_dim, exp_scalar);
}

}  // namespace
}  // namespace fasa::cpu
