// The weights of a page of value codes in 8 bits, relative to the page's largest.
#pragma once

#include "kernels/cpu/low_bit_rounding_inl.h"
#include "kernels/cpu/rows/row_body_types.h"
#include "kernels/low_bit_pages.h"

namespace fasa::cpu {
namespace {

// exp(code / kScoreUnits) for codes up to 0, within 2e-4; 0 for kNoScoreCode and where it is below
// 2^-30. Much cheaper than exp_of.
inline Vec weight_of(Bits code) {
  constexpr float kLog2 = 1.44269504f / kScoreUnits;
  const Vec shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec x = max_of(__builtin_convertvector(code, Vec) * splat(kLog2), splat(-30.0f));
  const Vec shifted = x + shifter;
  const Vec r = x - (shifted - shifter);
  Vec p = fma(splat(0.0558263f), r, splat(0.2401397f));
  p = fma(fma(p, r, splat(0.6931472f)), r, splat(1.0f));
  const Vec power = (Vec)((Bits)p + ((Bits)shifted << 23));
  return (Vec)((Bits)power & (code > int{kNoScoreCode}));
}

// Writes the weights of a page's tokens, [kHeads][64], and each head's sum of them.
template <int kHeads>
inline void weigh_page(const int16_t* scores, int64_t stride, unsigned char* weights,
                       float* totals) {
  static constexpr RoundingOffsets<float> kOffsets(1);
  typedef short Shorts __attribute__((vector_size(kLanes * 2)));
  typedef unsigned char Bytes __attribute__((vector_size(kLanes)));
  for (int h = 0; h < kHeads; ++h, scores += stride) {
    Bits sum = {};
    for (int t = 0; t < kMaxPageTokens; t += kLanes, weights += kLanes) {
      Shorts codes;
      __builtin_memcpy(&codes, scores + t, sizeof(codes));
      const Vec weight = weight_of(__builtin_convertvector(codes, Bits));
      const Bits rounded =
          __builtin_convertvector(fma(weight, splat(kLargestWeight), load(kOffsets.of + t)), Bits);
      sum += rounded;
      const Bytes bytes = __builtin_convertvector(rounded, Bytes);
      __builtin_memcpy(weights, &bytes, sizeof(bytes));
    }
    totals[h] = reduce_add(__builtin_convertvector(sum, Vec));  // exact: at most 64 * 255
  }
}

}  // namespace
}  // namespace fasa::cpu
