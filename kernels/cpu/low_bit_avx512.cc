// clang-format off
#include "kernels/cpu/rows/row_vector_avx512.h"
// clang-format on
#include "kernels/cpu/low_bit_weights_avx512_inl.h"
#include "kernels/cpu/rows/row_math_inl.h"

namespace fasa::cpu {
namespace {

inline Bits load_quad(const unsigned char* codes, int64_t token_bytes) {
  const auto sixteen = [&](int token) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(codes + token * token_bytes));
  };
  const __m256i first = _mm256_set_m128i(_mm_unpackhi_epi8(sixteen(0), sixteen(1)),
                                         _mm_unpacklo_epi8(sixteen(0), sixteen(1)));
  const __m256i second = _mm256_set_m128i(_mm_unpackhi_epi8(sixteen(2), sixteen(3)),
                                          _mm_unpacklo_epi8(sixteen(2), sixteen(3)));
  const __m256i low = _mm256_unpacklo_epi16(first, second);  // bytes 0 to 3, 8 to 11
  const __m256i high = _mm256_unpackhi_epi16(first, second);
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  return (Bits)_mm512_shuffle_i64x2(both, both, _MM_SHUFFLE(3, 1, 2, 0));
}

typedef __m512i ByteSums;
constexpr bool kInPlace = false;
inline ByteSums dot_bytes(ByteSums sum, Bits weights, Bits codes) {
  return _mm512_add_epi16(sum, _mm512_maddubs_epi16((__m512i)weights, (__m512i)codes));
}
inline Bits widened(ByteSums sum) { return (Bits)_mm512_madd_epi16(sum, _mm512_set1_epi16(1)); }

}  // namespace
}  // namespace fasa::cpu

#include "kernels/cpu/low_bit_page_inl.h"

namespace fasa::cpu {

const LowBitBodies kLowBitAvx512 = kLowBitBodies;

}  // namespace fasa::cpu
