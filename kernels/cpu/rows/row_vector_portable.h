// Vectors of 4 floats in the compiler's own terms, for any processor. See row_math_inl.h for what a
// vector header offers.
#pragma once

#include <stdint.h>

namespace fasa::cpu {
namespace {

constexpr int kLanes = 4;
constexpr int kGemmRows = 4;
constexpr int kGemmVectors = 2;
constexpr int kTileKeys = 2;

typedef float Vec __attribute__((vector_size(16)));
typedef int Bits __attribute__((vector_size(16)));
typedef Vec Quad;
typedef float VecMem __attribute__((vector_size(16), aligned(4), may_alias));

inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
inline Vec max_of(Vec a, Vec b) { return a > b ? a : b; }
inline float reduce_add(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline Quad reduce_add4(Vec a, Vec b, Vec c, Vec d) {
  return Quad{reduce_add(a), reduce_add(b), reduce_add(c), reduce_add(d)};
}
inline float reduce_max(Vec v) {
  const float a = v[0] > v[2] ? v[0] : v[2];
  const float b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}

inline Bits add_if_less(Bits count, Bits a, Bits b) { return count - (a < b); }
inline Vec add_if_less(Vec sum, Vec weights, Bits a, Bits b) {
  return sum + (Vec)((Bits)weights & (a < b));
}
inline unsigned lanes_within(Bits a, Bits low, Bits high) {
  const Bits within = (a >= low) & (a < high) & Bits{1, 2, 4, 8};
  return static_cast<unsigned>(within[0] | within[1] | within[2] | within[3]);
}

inline Vec lookup8(const float* table, Bits i) {
  i &= 7;
  return Vec{table[i[0]], table[i[1]], table[i[2]], table[i[3]]};
}

inline Vec load_bf16(const unsigned char* p) {
  unsigned short bits[kLanes];
  __builtin_memcpy(bits, p, sizeof(bits));
  return (Vec)(Bits{bits[0] << 16, bits[1] << 16, bits[2] << 16, bits[3] << 16});
}
inline Vec load_f16(const unsigned char* p) {
  typedef unsigned short Halves __attribute__((vector_size(kLanes * 2)));
  Halves halves;
  __builtin_memcpy(&halves, p, sizeof(halves));
  const Bits bits = __builtin_convertvector(halves, Bits);
  const Bits magnitude = (bits & 0x7fff) << 13;
  const Vec finite = (Vec)magnitude * 0x1p112f;
  const Bits special = (bits & 0x7c00) == 0x7c00;  // infinities, NaN
  const Bits value = (special & (magnitude | 0x7f800000)) | (~special & (Bits)finite);
  return (Vec)(value | ((bits & 0x8000) << 16));
}
inline Vec load_int8(const unsigned char* p) {
  signed char codes[kLanes];
  __builtin_memcpy(codes, p, sizeof(codes));
  return Vec{static_cast<float>(codes[0]), static_cast<float>(codes[1]),
             static_cast<float>(codes[2]), static_cast<float>(codes[3])};
}
struct Codes {
  int16_t of[8];
};
constexpr int kCodeLanes = 8;
inline Codes load_codes(const unsigned char* p) {
  Codes codes;
  for (int i = 0; i < kCodeLanes; ++i) codes.of[i] = static_cast<signed char>(p[i]);
  return codes;
}
inline Codes load_int16(const int16_t* p) {
  Codes codes;
  __builtin_memcpy(&codes, p, sizeof(codes));
  return codes;
}
inline Bits dot_codes(Bits sum, Codes a, Codes b) {
  for (int i = 0; i < kLanes; ++i) {
    sum[i] += a.of[2 * i] * b.of[2 * i] + a.of[2 * i + 1] * b.of[2 * i + 1];
  }
  return sum;
}
inline Vec floats_of(Bits values) { return __builtin_convertvector(values, Vec); }
inline void store_int16(int16_t* p, Bits values) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int16_t>(values[i]);
}

constexpr int kPairVectors = 2;
inline void load_code_pairs(const unsigned char* a, const unsigned char* b, Codes* pairs) {
  for (int i = 0; i < kPairVectors * kLanes; ++i) {
    pairs[i / kLanes].of[i % kLanes * 2] = static_cast<signed char>(a[i]);
    pairs[i / kLanes].of[i % kLanes * 2 + 1] = static_cast<signed char>(b[i]);
  }
}
inline void store_pair_sums(const Vec* sums, float* out) {
  for (int i = 0; i < kPairVectors; ++i) *reinterpret_cast<VecMem*>(out + i * kLanes) = sums[i];
}
inline Codes splat_pair(const int16_t* p) {
  Codes codes;
  for (int i = 0; i < kCodeLanes; ++i) codes.of[i] = p[i % 2];
  return codes;
}

inline unsigned parities(const unsigned char* p, int count) {
  unsigned char all[16] = {};
  for (int i = 0; i < count; ++i) all[i % 16] = static_cast<unsigned char>(all[i % 16] ^ p[i]);
  unsigned bits = 0;
  for (int b = 0; b < 16; ++b) bits |= (all[b] & 1u) << b;
  return bits;
}
inline void parities4(const unsigned char* const* vectors, int64_t offset, int count,
                      unsigned* bits) {
  for (int i = 0; i < 4; ++i) bits[i] = parities(vectors[i] + offset, count);
}

}  // namespace
}  // namespace fasa::cpu
