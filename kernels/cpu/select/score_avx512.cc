// AVX-512 F, BW, VL, DQ: bytes multiplied in pairs, bf16 widened to f32.
#include <immintrin.h>

#include "kernels/cpu/select/score_bodies.h"

namespace fasa::cpu {
namespace {

#include "kernels/cpu/select/score_reduce_inl.h"

#include "kernels/cpu/select/score_avx512_inl.h"

struct Avx512 : Avx512Base {
  static constexpr bool kWideDot = false;
  // Pairs saturate at 16 bits: 255 * 63 * 2 and 15 * 127 * 2 do not.
  static inline I dot(I sum, I codes, I weights) {
    return _mm512_add_epi32(
        sum, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, weights), _mm512_set1_epi16(1)));
  }
};

#include "kernels/cpu/select/score_body_inl.h"

}  // namespace

constinit const ScoreBodies kScoreAvx512 = bodies_of<Avx512>(AllCodeWidths());

}  // namespace fasa::cpu
