// clang-format off
#include "kernels/cpu/rows/row_vector_avx2.h"
// clang-format on
#include "kernels/cpu/rows/row_math_inl.h"
// Over the vectors.
#include "kernels/cpu/low_bit_weights_inl.h"

namespace fasa::cpu {
namespace {

inline Bits load_quad(const unsigned char* codes, int64_t token_bytes) {
  const auto eight = [&](int token) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(codes + token * token_bytes));
  };
  const __m128i first = _mm_unpacklo_epi8(eight(0), eight(1));
  const __m128i second = _mm_unpacklo_epi8(eight(2), eight(3));
  return (Bits)_mm256_set_m128i(_mm_unpackhi_epi16(first, second),
                                _mm_unpacklo_epi16(first, second));
}

typedef __m256i ByteSums;
constexpr bool kInPlace = false;
inline ByteSums dot_bytes(ByteSums sum, Bits weights, Bits codes) {
  return _mm256_add_epi16(sum, _mm256_maddubs_epi16((__m256i)weights, (__m256i)codes));
}
inline Bits widened(ByteSums sum) { return (Bits)_mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }

}  // namespace
}  // namespace fasa::cpu

#include "kernels/cpu/low_bit_page_inl.h"

namespace fasa::cpu {

const LowBitBodies kLowBitAvx2 = kLowBitBodies;

}  // namespace fasa::cpu
