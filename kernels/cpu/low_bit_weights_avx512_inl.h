// The weights of a page as in low_bit_weights_inl.h, in 16-bit integers, 32 tokens at a time: a
// code is -y / 2048 octaves, and the low 11 bits of y are looked up in two tables. Exact to 4e-4
// before they are rounded.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/low_bit_rounding_inl.h"
#include "kernels/low_bit_pages.h"

namespace fasa::cpu {
namespace {

// 2^(-i / 64) of 255 * 256, and 2^(-i / 2048) of 65535, half a step lower: y is rounded down.
struct PowerTables {
  alignas(64) uint16_t coarse[64];
  alignas(64) uint16_t fine[32];
  constexpr PowerTables() : coarse(), fine() {
    constexpr double kCoarse = 0.98922801319397548;  // 2^(-1 / 64)
    constexpr double kFine = 0.99966160658012684;    // 2^(-1 / 2048)
    double value = 255 * 256;
    for (uint16_t& entry : coarse) {
      entry = static_cast<uint16_t>(value + 0.5);
      value *= kCoarse;
    }
    value = 65535 * 0.99983078858857;  // 2^(-1 / 4096)
    for (uint16_t& entry : fine) {
      entry = static_cast<uint16_t>(value + 0.5);
      value *= kFine;
    }
  }
};

// The weights of 32 tokens in units of 2^-16, with their offsets. Those below 2^-16 are 0.
inline __m512i weights_of(const int16_t* scores, const uint16_t* offsets) {
  static constexpr PowerTables kTables;
  constexpr int kLowest = 2839;   // in y: the last one that fits 16 bits
  constexpr int kOctave = 47274;  // of 2^20: 2048 log2(e) / kScoreUnits
  static_assert(kScoreUnits == 256);
  const __m512i distance =
      _mm512_min_epu16(_mm512_abs_epi16(_mm512_loadu_si512(scores)), _mm512_set1_epi16(kLowest));
  const __m512i y = _mm512_mulhi_epu16(_mm512_slli_epi16(distance, 4),
                                       _mm512_set1_epi16(static_cast<int16_t>(kOctave)));
  const __m512i coarse =
      _mm512_permutex2var_epi16(_mm512_load_si512(kTables.coarse), _mm512_srli_epi16(y, 5),
                                _mm512_load_si512(kTables.coarse + 32));
  const __m512i fine = _mm512_permutexvar_epi16(y, _mm512_load_si512(kTables.fine));
  const __m512i weight =
      _mm512_srlv_epi16(_mm512_mulhi_epu16(coarse, fine), _mm512_srli_epi16(y, 11));
  return _mm512_add_epi16(weight, _mm512_load_si512(offsets));
}

struct OddBytes {
  alignas(64) uint8_t of[64];
  constexpr OddBytes() : of() {
    for (int i = 0; i < 64; ++i) of[i] = static_cast<uint8_t>(i * 2 + 1);
  }
};

// The high bytes of two registers, in order.
inline __m512i high_bytes(__m512i a, __m512i b) {
#ifdef __AVX512VBMI__
  static constexpr OddBytes kOdd;
  return _mm512_permutex2var_epi8(a, _mm512_load_si512(kOdd.of), b);
#else
  const __m512i packed = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
#endif
}

// Writes the weights of a page's tokens, [kHeads][64], and each head's sum of them, at most four.
template <int kHeads>
inline void weigh_page(const int16_t* scores, int64_t stride, unsigned char* weights,
                       float* totals) {
  static constexpr RoundingOffsets<uint16_t> kOffsets(256);
  __m512i sums = {};  // of each head 16 bits in each lane of 64
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h, scores += stride) {
    const __m512i bytes =
        high_bytes(weights_of(scores, kOffsets.of), weights_of(scores + 32, kOffsets.of + 32));
    _mm512_store_si512(weights + h * kMaxPageTokens, bytes);
    const __m512i of_head = _mm512_sad_epu8(bytes, __m512i{});
    sums = _mm512_or_si512(sums, _mm512_slli_epi64(of_head, h * 16));
  }
  const auto all = static_cast<uint64_t>(_mm512_reduce_add_epi64(sums));
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
    totals[h] = static_cast<float>(static_cast<uint16_t>(all >> (h * 16)));
  }
}

}  // namespace
}  // namespace fasa::cpu
