// Width-agnostic pieces of the row bodies, over a vector header that gives kLanes, Vec, Bits,
// VecMem, Quad, fma, max_of, reduce_add, reduce_add4 (the sums of four registers), reduce_max,
// add_if_less (to each lane's count or sum), lanes_within (a bit a lane), lookup8 (in a table of 8
// floats that stands there twice, 64-byte aligned, by the low three bits), load_bf16, load_f16,
// load_int8, and the block sizes kGemmRows, kGemmVectors, kTileKeys. For codes: Codes, kCodeLanes
// of them in 16 bits, load_codes, load_int16, store_int16, dot_codes (sums of products of
// neighbours, onto 32 bits), floats_of; load_code_pairs (of two rows, dimension by dimension side
// by side, kPairVectors x kLanes dimensions in an order of its own), splat_pair (two numbers
// throughout), store_pair_sums (in the dimensions' order); parities (bit b: whether an odd number
// of the bytes b, b + 16, b + 32, ... is odd), parities4 (of four vectors, each `offset` behind its
// pointer). Everything has internal linkage: one copy per instruction set.
#pragma once

#include "kernels/cpu/rows/row_body_types.h"

namespace fasa::cpu {
namespace {

enum RowType { kRowF32 = 0, kRowF16 = 1, kRowBF16 = 2, kRowInt8 = 3 };  // as RowDType

template <RowType kType>
constexpr int kElementBytes = kType == kRowF32    ? 4
                              : kType == kRowInt8 ? 1
                                                  : 2;
// Whether elements are codes in a vector with a scale (row_format.h).
template <RowType kType>
constexpr bool kIsCoded = kType == kRowInt8;

typedef float QuadMem __attribute__((vector_size(16), aligned(4), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const VecMem*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<VecMem*>(p) = v; }
inline Vec splat(float value) { return value - Vec{}; }  // x - 0 is x, and folds away

inline float float_of(unsigned bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// Loads elements or codes.
template <RowType kType>
inline Vec load_row(const unsigned char* p) {
  if constexpr (kType == kRowF32) return *reinterpret_cast<const VecMem*>(p);
  if constexpr (kType == kRowF16) return load_f16(p);
  if constexpr (kType == kRowBF16) return load_bf16(p);
  if constexpr (kType == kRowInt8) return load_int8(p);
}

// The first `count` < kCodeLanes codes, then zeros.
inline Codes load_codes_part(const unsigned char* p, int count) {
  alignas(64) unsigned char padded[kCodeLanes] = {};
  for (int i = 0; i < count; ++i) padded[i] = p[i];
  return load_codes(padded);
}

// The scale of a whole coded vector.
inline float scale_of(const unsigned char* codes, int count) {
  return float_of(parities(codes, count) << 16);
}

// The first `count` < kLanes elements, then zeros; reads nothing beyond them.
template <RowType kType>
inline Vec load_row_part(const unsigned char* p, int count) {
  alignas(64) unsigned char padded[kLanes * 4] = {};
  for (int i = 0; i < count * kElementBytes<kType>; ++i) padded[i] = p[i];
  return load_row<kType>(padded);
}

template <RowType kType>
void expand(const void* in, int64_t count, float* out) {
  const unsigned char* p = static_cast<const unsigned char*>(in);
  Vec scale = splat(1.0f);
  if constexpr (kIsCoded<kType>) scale = splat(scale_of(p, static_cast<int>(count)));
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(out + i, load_row<kType>(p + i * kElementBytes<kType>) * scale);
  if (i == count) return;
  const Vec rest =
      load_row_part<kType>(p + i * kElementBytes<kType>, static_cast<int>(count - i)) * scale;
  for (int j = 0; i < count; ++i, ++j) out[i] = rest[j];
}

// exp(x) for x <= 0 within 2 ulp; exp(0) = 1; below -87 (weights under 1e-37) exactly 0, so that no
// path ever meets subnormals; NaN stays NaN. Cody-Waite reduction and Cephes' expf polynomial.
inline Vec exp_of(Vec x) {
  const Vec shifter = splat(12582912.0f);        // 1.5 * 2^23: adding it rounds to an integer
  const Vec floored = max_of(splat(-88.0f), x);  // NaN is the second operand, and wins
  const Vec shifted = fma(floored, splat(1.44269504088896341f), shifter);
  const Vec n = shifted - shifter;
  const Vec r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), floored));
  Vec p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + splat(1.0f);
  const Vec power = (Vec)(((Bits)shifted << 23) + (127 << 23));
  const Vec result = p * power;
  return x < splat(-87.0f) ? Vec{} : result;
}
inline float exp_scalar(float x) { return exp_of(splat(x))[0]; }

#include "kernels/cpu/rows/soft_cap_inl.h"

}  // namespace
}  // namespace fasa::cpu
