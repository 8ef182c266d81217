// Registers of 8 floats for the row bodies. See row_math_inl.h for what a vector header offers.
#pragma once

#include <immintrin.h>

namespace fasa::cpu {
namespace {

constexpr int kLanes = 8;
constexpr int kGemmRows = 6;  // 6 x 2 accumulators, 2 of B, one of A: 15 of 16 registers
constexpr int kGemmVectors = 2;
constexpr int kTileKeys = 2;  // keys x heads accumulators of FAC's scores

typedef float Vec __attribute__((vector_size(32)));
typedef int Bits __attribute__((vector_size(32)));
typedef float Quad __attribute__((vector_size(16)));
typedef float VecMem __attribute__((vector_size(32), aligned(4), may_alias));

inline Vec fma(Vec a, Vec b, Vec c) {
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
inline Vec max_of(Vec a, Vec b) { return (Vec)_mm256_max_ps((__m256)a, (__m256)b); }
inline float reduce_add(Vec v) {
  const __m256 all = (__m256)v;
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
inline Quad reduce_add4(Vec a, Vec b, Vec c, Vec d) {
  const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps((__m256)a, (__m256)b),
                                  _mm256_unpackhi_ps((__m256)a, (__m256)b));
  const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps((__m256)c, (__m256)d),
                                  _mm256_unpackhi_ps((__m256)c, (__m256)d));
  const __m256 quads =
      _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
  return (Quad)_mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
}
inline float reduce_max(Vec v) {
  const __m256 all = (__m256)v;
  __m128 top = _mm_max_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
  top = _mm_max_ps(top, _mm_movehl_ps(top, top));
  return _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
}

inline Bits add_if_less(Bits count, Bits a, Bits b) { return count - (a < b); }
inline Vec add_if_less(Vec sum, Vec weights, Bits a, Bits b) {
  return sum + (Vec)((Bits)weights & (a < b));
}
inline unsigned lanes_within(Bits a, Bits low, Bits high) {
  const Bits within = (a >= low) & (a < high);
  return static_cast<unsigned>(_mm256_movemask_ps((__m256)within));
}

inline Vec lookup8(const float* table, Bits i) {
  return (Vec)_mm256_permutevar8x32_ps(_mm256_load_ps(table), (__m256i)i);
}

inline Vec load_bf16(const unsigned char* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p));
  return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
}
inline Vec load_f16(const unsigned char* p) {
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p)));
}
inline Vec load_int8(const unsigned char* p) {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p));
  return (Vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
}
typedef __m256i Codes;
constexpr int kCodeLanes = 16;
inline Codes load_codes(const unsigned char* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p)));
}
inline Codes load_int16(const int16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p));
}
inline Bits dot_codes(Bits sum, Codes a, Codes b) { return sum + (Bits)_mm256_madd_epi16(a, b); }
inline Vec floats_of(Bits values) { return (Vec)_mm256_cvtepi32_ps((__m256i)values); }
inline void store_int16(int16_t* p, Bits values) {
  const __m256i all = (__m256i)values;
  const __m128i packed =
      _mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i_u*>(p), packed);
}

constexpr int kPairVectors = 2;
inline void load_code_pairs(const unsigned char* a, const unsigned char* b, Codes* pairs) {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(a));
  const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(b));
  pairs[0] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(first, second));
  pairs[1] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(first, second));
}
inline void store_pair_sums(const Vec* sums, float* out) {
  for (int i = 0; i < kPairVectors; ++i) *reinterpret_cast<VecMem*>(out + i * kLanes) = sums[i];
}
inline Codes splat_pair(const int16_t* p) {
  int both;
  __builtin_memcpy(&both, p, sizeof(both));
  return _mm256_set1_epi32(both);
}

inline unsigned parities(const unsigned char* p, int count) {
  __m256i all = {};
  int i = 0;
  for (; i + 32 <= count; i += 32) {
    all = _mm256_xor_si256(all, _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p + i)));
  }
  if (i < count) {
    alignas(32) unsigned char padded[32] = {};
    for (int j = 0; i < count; ++i, ++j) padded[j] = p[i];
    all = _mm256_xor_si256(all, *reinterpret_cast<const __m256i*>(padded));
  }
  const __m128i sixteen =
      _mm_xor_si128(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_slli_epi16(sixteen, 7)));
}
inline void parities4(const unsigned char* const* vectors, int64_t offset, int count,
                      unsigned* bits) {
  for (int i = 0; i < 4; ++i) bits[i] = parities(vectors[i] + offset, count);
}

}  // namespace
}  // namespace fasa::cpu
