// Registers of 16 floats for the packed bodies. See packed_body_inl.h for what a vector header
// offers.
#pragma once

#include <immintrin.h>

namespace fasa::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kTwoPanelRows = 2;

typedef float Vec __attribute__((vector_size(64)));
typedef int Bits __attribute__((vector_size(64)));

inline Vec fma(Vec a, Vec b, Vec c) {
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

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

inline __m256i load_halves(const unsigned char* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(at));
}
inline __m128i load_bytes(const unsigned char* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(at));
}
inline Vec widen_f16(const unsigned char* at) { return (Vec)_mm512_cvtph_ps(load_halves(at)); }
inline Vec widen_bf16(const unsigned char* at) {
  return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(at)), 16);
}
inline Vec widen_i16(const unsigned char* at) {
  return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(load_halves(at)));
}
inline Vec widen_i8(const unsigned char* at) {
  return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(at)));
}
inline Bits load_u8(const unsigned char* at) { return (Bits)_mm512_cvtepu8_epi32(load_bytes(at)); }

}  // namespace
}  // namespace fasa::cpu
