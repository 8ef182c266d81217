// AVX2 with FMA: half as many tokens at once, so that the accumulators fit sixteen registers.
#include <immintrin.h>

#include "kernels/cpu/select/score_bodies.h"

namespace fasa::cpu {
namespace {

#include "kernels/cpu/select/score_append_inl.h"

#include "kernels/cpu/select/score_reduce_inl.h"

struct Avx2 {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kBlocks = 2;
  static constexpr bool kOwnCodes = false;
  static constexpr bool kWideDot = false;

  static inline F zero_f() { return _mm256_setzero_ps(); }
  static inline I zero_i() { return _mm256_setzero_si256(); }
  static inline F set_f(float x) { return _mm256_set1_ps(x); }
  static inline I set_i(int x) { return _mm256_set1_epi32(x); }
  static inline I ones_u8() { return _mm256_set1_epi8(1); }
  static inline F load_f(const float* p) { return _mm256_loadu_ps(p); }
  static inline F load_unaligned(const float* p) { return _mm256_loadu_ps(p); }
  static inline I load_i(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static inline void store_f(float* p, F x) { _mm256_storeu_ps(p, x); }
  static inline void store_i(void* p, I x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  static inline I load_u16(const uint16_t* p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static inline I broadcast4(const int8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    return _mm256_set1_epi32(word);
  }

  static inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static inline F add_f(F a, F b) { return _mm256_add_ps(a, b); }
  static inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static inline F max(F a, F b) { return _mm256_max_ps(a, b); }
  static inline F max_abs(F a, F b) {
    return _mm256_max_ps(a, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), b));
  }
  static inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static inline F to_f(I x) { return _mm256_cvtepi32_ps(x); }
  static inline I round_i(F x) { return _mm256_cvtps_epi32(x); }
  static inline I add_i(I a, I b) { return _mm256_add_epi32(a, b); }
  static inline I and_i(I a, I b) { return _mm256_and_si256(a, b); }
  template <int kBits>
  static inline I shift_down(I x) {
    return _mm256_srai_epi32(x, kBits);
  }
  template <int kBits>
  static inline I shift_up(I x) {
    return _mm256_slli_epi32(x, kBits);
  }

  static inline F low_half(I pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
  static inline F high_half(I pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
  }
  static inline F scale_below(I word) {
    const F eighths = _mm256_setr_ps(1.0f, 0.917004043f, 0.840896415f, 0.771105413f, 0.707106781f,
                                     0.648419777f, 0.594603558f, 0.545253866f);
    const I octaves = _mm256_and_si256(_mm256_slli_epi32(word, 20), _mm256_set1_epi32(7 << 23));
    return _mm256_castsi256_ps(
        _mm256_sub_epi32(_mm256_castps_si256(_mm256_permutevar8x32_ps(eighths, word)), octaves));
  }
  static inline I signed_high_ten(I word) {
    return _mm256_srai_epi32(_mm256_slli_epi32(word, 16), 22);
  }
  static inline I pack_i8(I a, I b, I c, I d) {
    const I packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  // Pairs saturate at 16 bits: 255 * 63 * 2 and 15 * 127 * 2 do not.
  static inline I dot(I sum, I codes, I weights) {
    return _mm256_add_epi32(
        sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, weights), _mm256_set1_epi16(1)));
  }

  static inline __m128 fold_max(F x) {
    return _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  }
  static inline __m128 fold_sum(F x) {
    return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  }
  static inline bool steps_of(const F* largest, float limit, float* step, float* inverse) {
    return steps_of_folded(fold_max(largest[0]), fold_max(largest[1]), fold_max(largest[2]),
                           fold_max(largest[3]), limit, step, inverse);
  }
  static inline bool sums_of(const F* sum, float* offset) {
    return sums_of_folded(fold_sum(sum[0]), fold_sum(sum[1]), fold_sum(sum[2]), fold_sum(sum[3]),
                          offset);
  }
  static inline bool all_finite(F x) {
    return _mm256_movemask_ps(_mm256_cmp_ps(_mm256_sub_ps(x, x), zero_f(), _CMP_EQ_OQ)) == 0xff;
  }
  static inline uint32_t not_negative(F x) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x, zero_f(), _CMP_GE_OQ)));
  }

  static void append(const float* scores, uint64_t mask, int32_t position, Candidates* candidates) {
    append_one_by_one(scores, mask, position, candidates);
  }
  static int32_t find_at_least(const int32_t* keys, int32_t begin, int32_t end, int32_t bound,
                               int32_t* found, int32_t* places) {
    return find_one_by_one(keys, begin, end, bound, found, places);
  }
};

#include "kernels/cpu/select/score_body_inl.h"

}  // namespace

constinit const ScoreBodies kScoreAvx2 = bodies_of<Avx2>(AllCodeWidths());

}  // namespace fasa::cpu
