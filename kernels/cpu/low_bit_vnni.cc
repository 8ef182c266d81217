// AVX-512 with VNNI and VBMI: products of four bytes a lane, bytes of four tokens side by side by
// one permutation.
// clang-format off
#include "kernels/cpu/rows/row_vector_avx512.h"
// clang-format on
#include "kernels/cpu/low_bit_weights_avx512_inl.h"
#include "kernels/cpu/rows/row_math_inl.h"

namespace fasa::cpu {
namespace {

struct QuadOrder {
  alignas(64) unsigned char of[64];
  constexpr QuadOrder() : of() {
    for (int i = 0; i < 64; ++i) of[i] = static_cast<unsigned char>(i % 4 * 16 + i / 4);
  }
};

inline Bits load_quad(const unsigned char* codes, int64_t token_bytes) {
  static constexpr QuadOrder kOrder;
  const auto sixteen = [&](int token) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(codes + token * token_bytes));
  };
  __m512i tokens = _mm512_castsi128_si512(sixteen(0));
  tokens = _mm512_mask_broadcast_i32x4(tokens, 0x00f0, sixteen(1));
  tokens = _mm512_mask_broadcast_i32x4(tokens, 0x0f00, sixteen(2));
  tokens = _mm512_mask_broadcast_i32x4(tokens, 0xf000, sixteen(3));
  return (Bits)_mm512_permutexvar_epi8(_mm512_load_si512(kOrder.of), tokens);
}

typedef Bits ByteSums;
constexpr bool kInPlace = true;
inline ByteSums dot_bytes(ByteSums sum, Bits weights, Bits codes) {
  // Like _mm512_dpbusd_epi32, for which GCC 12 copies accumulators.
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(codes));
  return sum;
}
inline Bits widened(ByteSums sum) { return sum; }

}  // namespace
}  // namespace fasa::cpu

#include "kernels/cpu/low_bit_page_inl.h"

namespace fasa::cpu {

const LowBitBodies kLowBitVnni = kLowBitBodies;

}  // namespace fasa::cpu
