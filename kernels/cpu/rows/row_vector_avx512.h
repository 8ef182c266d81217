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
inline void store_int16(int16_t* p, Bits values) {
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(p), _mm512_cvtepi32_epi16((__m512i)values));
}

constexpr int kPairVectors = 4;
inline void load_code_pairs(const unsigned char* a, const unsigned char* b, Codes* pairs) {
  const __m512i first = _mm512_loadu_si512(a);
  const __m512i second = _mm512_loadu_si512(b);
  const __m512i low = _mm512_unpacklo_epi8(first, second);
  const __m512i high = _mm512_unpackhi_epi8(first, second);
  pairs[0] = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(low));
  pairs[1] = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(high));
  pairs[2] = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(low, 1));
  pairs[3] = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(high, 1));
}
// Unpacking leaves eight dimensions of one register beside eight of the next.
inline void store_pair_sums(const Vec* sums, float* out) {
  for (int i = 0; i < kPairVectors; i += 2, out += 2 * kLanes) {
    const __m512 low = (__m512)sums[i];
    const __m512 high = (__m512)sums[i + 1];
    _mm256_storeu_ps(out, _mm512_castps512_ps256(low));
    _mm256_storeu_ps(out + 8, _mm512_castps512_ps256(high));
    _mm256_storeu_ps(out + 16, _mm512_extractf32x8_ps(low, 1));
    _mm256_storeu_ps(out + 24, _mm512_extractf32x8_ps(high, 1));
  }
}
inline Codes splat_pair(const int16_t* p) {
  int both;
  __builtin_memcpy(&both, p, sizeof(both));
  return _mm512_set1_epi32(both);
}

// The bytes of a vector folded onto 64.
inline __m512i xor_codes(const unsigned char* p, int count) {
  __m512i all = {};
  int i = 0;
  for (; i + 64 <= count; i += 64) all = _mm512_xor_si512(all, _mm512_loadu_si512(p + i));
  if (i < count) {
    const __mmask64 rest = (__mmask64{1} << (count - i)) - 1;
    all = _mm512_xor_si512(all, _mm512_maskz_loadu_epi8(rest, p + i));
  }
  return all;
}
// The quarters of a and of b, two by two: a0^a2, a1^a3, b0^b2, b1^b3.
inline __m512i xor_halves(__m512i a, __m512i b) {
  return _mm512_xor_si512(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
}
inline void parities4(const unsigned char* const* vectors, int64_t offset, int count,
                      unsigned* bits) {
  const __m512i ab =
      xor_halves(xor_codes(vectors[0] + offset, count), xor_codes(vectors[1] + offset, count));
  const __m512i cd =
      xor_halves(xor_codes(vectors[2] + offset, count), xor_codes(vectors[3] + offset, count));
  const __m512i sixteens =
      _mm512_xor_si512(_mm512_shuffle_i64x2(ab, cd, 0x88), _mm512_shuffle_i64x2(ab, cd, 0xdd));
  const __mmask64 of_all = _mm512_movepi8_mask(_mm512_slli_epi16(sixteens, 7));
  const __m128i words = _mm_cvtsi64_si128(static_cast<int64_t>(of_all));
  _mm_storeu_si128(reinterpret_cast<__m128i_u*>(bits), _mm_cvtepu16_epi32(words));
}
inline unsigned parities(const unsigned char* p, int count) {
  const unsigned char* const four[] = {p, p, p, p};
  unsigned bits[4];
  parities4(four, 0, count, bits);
  return bits[0];
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
