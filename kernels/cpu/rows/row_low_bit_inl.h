// Attention over a tile of a low-bit set: scores are given; values are decoded from codes, or read
// in f32 if their page is not sealed yet. A code is decoded once per block of query heads.
// Consecutive tokens of one page share its parameters.
#pragma once

#include "kernels/cpu/rows/row_attend_inl.h"

namespace fasa::cpu {
namespace {

// For kLanes dimensions: the position of a code in its word, and whether it extends into a second
// one (slice_format.h).
template <int kBits>
struct CodePositions {
  static constexpr int kUnit = 32 / kBits;  // dimensions of a word
  static constexpr int kCount = kUnit > kLanes ? kUnit : kLanes;
  alignas(64) int shifts[kCount];
  alignas(64) int second[kLanes];  // all bits or none

  constexpr CodePositions() : shifts(), second() {
    for (int d = 0; d < kCount; ++d) shifts[d] = d % 4 * 8 + d % kUnit / 4 * kBits;
    for (int d = 0; d < kLanes; ++d) second[d] = d >= kUnit ? -1 : 0;
  }
};

// Dimensions [at, at + kLanes) of a token's codes; may read beyond them.
template <int kBits>
inline Vec load_codes(const unsigned char* words, int at) {
  static constexpr CodePositions<kBits> kPositions;
  constexpr int kUnit = CodePositions<kBits>::kUnit;
  if constexpr (kBits == 8) {  // the words' bytes are the dimensions in order
    typedef unsigned char Bytes __attribute__((vector_size(kLanes)));
    Bytes bytes;
    __builtin_memcpy(&bytes, words + at, sizeof(bytes));
    return __builtin_convertvector(__builtin_convertvector(bytes, Bits), Vec);
  } else {
    constexpr int kWords = kLanes > kUnit ? 2 : 1;
    static_assert(kLanes <= kWords * kUnit);
    int read[kWords];
    __builtin_memcpy(read, words + at / kUnit * 4, sizeof(read));
    Bits lanes = Bits{} + read[0];
    if constexpr (kWords == 2) {
      Bits second;
      __builtin_memcpy(&second, kPositions.second, sizeof(second));
      lanes = (lanes & ~second) | ((Bits{} + read[1]) & second);
    }
    Bits shifts;
    __builtin_memcpy(&shifts, kPositions.shifts + at % kUnit, sizeof(shifts));
    return __builtin_convertvector((lanes >> shifts) & ((1 << kBits) - 1), Vec);
  }
}

// value = scale * code + offset, for kLanes dimensions of a page.
struct CodeScale {
  Vec scale, offset;
};

// `unit`: of the codes that are multiplied; `middle`: what was subtracted from them before.
template <int kBits>
inline CodeScale code_scale(Bits parameter, float base, float unit = 1, float middle = 0) {
  alignas(64) static constexpr float kEighths[16] = {
      // 2^(-i / 8), twice
      1.0f,         0.917004043f, 0.840896415f, 0.771105413f, 0.707106781f, 0.648419777f,
      0.594603558f, 0.545253866f, 1.0f,         0.917004043f, 0.840896415f, 0.771105413f,
      0.707106781f, 0.648419777f, 0.594603558f, 0.545253866f};
  const Bits octaves = (parameter << 20) & (7 << 23);
  const Vec scale = (Vec)((Bits)lookup8(kEighths, parameter) - octaves) * splat(base * unit);
  const Vec zero = __builtin_convertvector(parameter >> 6, Vec);
  return {scale, scale * fma(zero, splat(kZeroUnit<kBits> / unit), splat(middle / unit))};
}

template <int kBits>
inline CodeScale load_scale(const unsigned char* parameters, float base, int at) {
  typedef short Halves __attribute__((vector_size(kLanes * 2)));
  Halves halves;
  __builtin_memcpy(&halves, parameters + at * 2, sizeof(halves));
  return code_scale<kBits>(__builtin_convertvector(halves, Bits), base);
}

template <int kBits, int kHeads>
inline void sum_low_bit_values(const LowBitTask& task, int head, int at, const float* weights) {
  const LowBitTile& tile = *task.tile;
  Vec sums[kHeads] = {};
  CodeScale page = {};
  const unsigned char* of = nullptr;  // page whose parameters are loaded
  for (int t = 0; t < tile.tokens; ++t) {
    Vec value;
    if (tile.values[t] != nullptr) {
      value = load(tile.values[t] + at);
    } else {
      if (tile.parameters[t] != of) {
        of = tile.parameters[t];
        page = load_scale<kBits>(of, *tile.bases[t], at);
      }
      value = fma(load_codes<kBits>(tile.codes[t], at), page.scale, page.offset);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      sums[h] = fma(splat(weights[h * kMaxTileTokens + t]), value, sums[h]);
    }
  }
  const int left = task.value_dim - at;
  for (int h = 0; h < kHeads; ++h) {
    float* out = task.partials + (head + h) * task.partial_stride + kSoftmaxHeader + at;
    if (left >= kLanes) {
      store(out, sums[h]);
    } else {
      for (int i = 0; i < left; ++i) out[i] = sums[h][i];
    }
  }
}

template <int kBits, int kHeads>
inline void attend_low_bit_heads(const LowBitTask& task, int head) {
  alignas(64) float weights[kHeads * kMaxTileTokens];
  for (int h = 0; h < kHeads; ++h) {
    const float* scores = task.scores + (head + h) * task.score_stride;
    float* scaled = weights + h * kMaxTileTokens;
    for (int t = 0; t < kMaxTileTokens; ++t) {
      scaled[t] = t < task.tile->tokens ? scores[t] * task.scale : minus_infinity();
    }
    weigh_tile(scaled, task.partials + (head + h) * task.partial_stride);
  }
  for (int at = 0; at < task.value_dim; at += kLanes) {
    sum_low_bit_values<kBits, kHeads>(task, head, at, weights);
  }
}

template <int kBits>
void attend_low_bit(const LowBitTask& task) {
  int head = 0;
  for (; head + kHeadBlock <= task.group; head += kHeadBlock) {
    attend_low_bit_heads<kBits, 4>(task, head);
  }
  switch (task.group - head) {
    case 3:
      return attend_low_bit_heads<kBits, 3>(task, head);
    case 2:
      return attend_low_bit_heads<kBits, 2>(task, head);
    case 1:
      return attend_low_bit_heads<kBits, 1>(task, head);
    default:
      return;
  }
}

}  // namespace
}  // namespace fasa::cpu
