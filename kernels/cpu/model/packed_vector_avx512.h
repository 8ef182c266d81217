// Registers of 16 floats for the packed bodies, which add tables to those of the row bodies. See
// packed_body_inl.h for what a vector header offers.
#pragma once

#include "kernels/cpu/rows/row_vector_avx512.h"

namespace fasa::cpu {
namespace {

constexpr int kTwoPanelRows = 2;

struct Table {
  __m512 values;
};
inline Table load_table(const float* values) { return {_mm512_loadu_ps(values)}; }
// Selects by the low 4 bits of each lane.
inline Vec look_up(const Table& table, Bits code) {
  return (Vec)_mm512_permutexvar_ps((__m512i)code, table.values);
}

// Selects by the low 3 bits, from a table that repeats after 8 values or fewer.
inline Vec look_up_three(const Table& table, Bits code) { return look_up(table, code); }

inline Bits dot_pairs(Bits sum, Bits a, Bits b) {
#ifdef __AVX512VNNI__
  return (Bits)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#else
  sum += (Bits)_mm512_madd_epi16((__m512i)a, (__m512i)b);
  asm("" : "+v"(sum));  // added here: GCC gathers the terms of a sum first, and spills them
  return sum;
#endif
}
inline Bits all_pairs(const short* at) {
  int two = 0;
  __builtin_memcpy(&two, at, sizeof(two));
  return (Bits)_mm512_set1_epi32(two);
}
struct ByteTable {
  __m512i values;  // + 128, without sign
};
inline ByteTable load_byte_table(const signed char* values) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(values));
  return {_mm512_xor_si512(_mm512_broadcast_i32x4(table), _mm512_set1_epi8(-128))};
}
// A byte whose highest bit is set selects zero.
inline Bits look_up_pairs(const ByteTable& table, Bits pair) {
  return (Bits)_mm512_shuffle_epi8(table.values,
                                   _mm512_or_si512((__m512i)pair, _mm512_set1_epi16(-32768)));
}

inline Vec widen_i16(const unsigned char* at) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(at));
  return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(halves));
}
inline Bits load_u8(const unsigned char* at) {
  return (Bits)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(at)));
}

}  // namespace
}  // namespace fasa::cpu
