// Registers of 16 floats for the row bodies. See row_math_inl.h for what a vector header offers.
#pragma once

#include <immintrin.h>

namespace fasa::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kGemmRows = 6;  // 6 x 4 accumulators, 4 of B, one of A: 29 of 32 registers
constexpr int kGemmVectors = 4;
constexpr int kTileKeys = 4;  // keys x heads accumulators of FAC's scores

typedef float Vec __attribute__((vector_size(64)));
typedef int Bits __attribute__((vector_size(64)));
typedef float Quad __attribute__((vector_size(16)));
typedef float VecMem __attribute__((vector_size(64), aligned(4), may_alias));

inline Vec fma(Vec a, Vec b, Vec c) {
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
inline Vec max_of(Vec a, Vec b) { return (Vec)_mm512_max_ps((__m512)a, (__m512)b); }
inline float reduce_add(Vec v) { return _mm512_reduce_add_ps((__m512)v); }
inline Quad reduce_add4(Vec a, Vec b, Vec c, Vec d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b),
                                  _mm512_unpackhi_ps((__m512)a, (__m512)b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps((__m512)c, (__m512)d),
                                  _mm512_unpackhi_ps((__m512)c, (__m512)d));
  const __m512 quads =
      _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  const __m256 half =
      _mm256_add_ps(_mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
  return (Quad)_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
inline float reduce_max(Vec v) { return _mm512_reduce_max_ps((__m512)v); }

inline Bits add_if_less(Bits count, Bits a, Bits b) {
  const __mmask16 less = _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b);
  return (Bits)_mm512_mask_add_epi32((__m512i)count, less, (__m512i)count, _mm512_set1_epi32(1));
}
inline Vec add_if_less(Vec sum, Vec weights, Bits a, Bits b) {
  const __mmask16 less = _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b);
  return (Vec)_mm512_mask_add_ps((__m512)sum, less, (__m512)sum, (__m512)weights);
}
inline unsigned lanes_within(Bits a, Bits low, Bits high) {
  const __mmask16 not_below = _mm512_cmpge_epi32_mask((__m512i)a, (__m512i)low);
  return _mm512_mask_cmplt_epi32_mask(not_below, (__m512i)a, (__m512i)high);
}

inline Vec lookup8(const float* table, Bits i) {
  return (Vec)_mm512_permutexvar_ps((__m512i)i, _mm512_load_ps(table));
}

inline Vec load_bf16(const unsigned char* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p));
  return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
}
inline Vec load_f16(const unsigned char* p) {
  return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p)));
}
inline Vec load_int8(const unsigned char* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p));
  return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
}
typedef __m512i Codes;
constexpr int kCodeLanes = 32;
inline Codes load_codes(const unsigned char* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p)));
}
inline Codes load_int16(const int16_t* p) { return _mm512_loadu_si512(p); }
inline Bits dot_codes(Bits sum, Codes a, Codes b) {
#ifdef __AVX512VNNI__
  return (Bits)_mm512_dpwssd_epi32((__m512i)sum, a, b);
#else
  return sum + (Bits)_mm512_madd_epi16(a, b);
#endif
}
inline Vec floats_of(Bits values) { return (Vec)_mm512_cvtepi32_ps((__m512i)values); }

inline unsigned parities(const unsigned char* p, int count) {
  __m512i all = {};
  int i = 0;
  for (; i + 64 <= count; i += 64) all = _mm512_xor_si512(all, _mm512_loadu_si512(p + i));
  if (i < count) {
    const __mmask64 rest = (__mmask64{1} << (count - i)) - 1;
    all = _mm512_xor_si512(all, _mm512_maskz_loadu_epi8(rest, p + i));
  }
  const __m256i half =
      _mm256_xor_si256(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  const __m128i sixteen =
      _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_slli_epi16(sixteen, 7)));
}

#ifdef FASA_BF16_DOT
typedef __m512bh Bf16Vec;
constexpr int kBf16Lanes = 32;
inline Bf16Vec load_bf16_pairs(const void* p) { return (Bf16Vec)_mm512_loadu_si512(p); }
// The first `count` elements, then zeros; reads nothing beyond them.
inline Bf16Vec load_bf16_pairs_part(const void* p, int count) {
  return (Bf16Vec)_mm512_maskz_loadu_epi16((__mmask32{1} << count) - 1, p);
}
inline Vec dot_bf16(Vec sum, Bf16Vec a, Bf16Vec b) {
  return (Vec)_mm512_dpbf16_ps((__m512)sum, a, b);
}
#endif

}  // namespace
}  // namespace fasa::cpu
