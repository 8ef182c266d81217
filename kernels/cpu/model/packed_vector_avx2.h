// Registers of 8 floats for the packed bodies, which add tables to those of the row bodies. See
// packed_body_inl.h for what a vector header offers.
#pragma once

#include "kernels/cpu/rows/row_vector_avx2.h"

namespace fasa::cpu {
namespace {

constexpr int kTwoPanelRows = 1;

struct Table {
  __m256 low, high;
};
inline Table load_table(const float* values) {
  return {_mm256_loadu_ps(values), _mm256_loadu_ps(values + 8)};
}
// Selects by the low 4 bits of each lane: three bits in the permutation, the fourth between halves.
inline Vec look_up(const Table& table, Bits code) {
  const __m256 low = _mm256_permutevar8x32_ps(table.low, (__m256i)code);
  const __m256 high = _mm256_permutevar8x32_ps(table.high, (__m256i)code);
  return (Vec)_mm256_blendv_ps(low, high,
                               _mm256_castsi256_ps(_mm256_slli_epi32((__m256i)code, 28)));
}

// Selects by the low 3 bits, from a table that repeats after 8 values or fewer.
inline Vec look_up_three(const Table& table, Bits code) {
  return (Vec)_mm256_permutevar8x32_ps(table.low, (__m256i)code);
}

inline Bits dot_pairs(Bits sum, Bits a, Bits b) {
  sum += (Bits)_mm256_madd_epi16((__m256i)a, (__m256i)b);
  asm("" : "+x"(sum));  // added here: GCC gathers the terms of a sum first, and spills them
  return sum;
}
inline Bits all_pairs(const short* at) {
  int two = 0;
  __builtin_memcpy(&two, at, sizeof(two));
  return (Bits)_mm256_set1_epi32(two);
}
struct ByteTable {
  __m256i values;  // + 128, without sign
};
inline ByteTable load_byte_table(const signed char* values) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(values));
  return {_mm256_xor_si256(_mm256_broadcastsi128_si256(table), _mm256_set1_epi8(-128))};
}
// A byte whose highest bit is set selects zero.
inline Bits look_up_pairs(const ByteTable& table, Bits pair) {
  return (Bits)_mm256_shuffle_epi8(table.values,
                                   _mm256_or_si256((__m256i)pair, _mm256_set1_epi16(-32768)));
}

inline Vec widen_i16(const unsigned char* at) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(at));
  return (Vec)_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(halves));
}
inline Bits load_u8(const unsigned char* at) {
  return (Bits)_mm256_cvtepu8_epi32(_mm_loadu_si64(at));
}

}  // namespace
}  // namespace fasa::cpu
