// Common part of the AVX-512 targets, for score_body_inl.h; included into an anonymous namespace.

struct Avx512Base {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kBlocks = 4;
  static constexpr bool kOwnCodes = true;  // has code_scores and take_out

  static inline F zero_f() { return _mm512_setzero_ps(); }
  static inline I zero_i() { return _mm512_setzero_si512(); }
  static inline F set_f(float x) { return _mm512_set1_ps(x); }
  static inline I set_i(int x) { return _mm512_set1_epi32(x); }
  static inline I ones_u8() { return _mm512_set1_epi8(1); }
  static inline F load_f(const float* p) { return _mm512_loadu_ps(p); }
  static inline F load_unaligned(const float* p) { return _mm512_loadu_ps(p); }
  static inline I load_i(const void* p) { return _mm512_loadu_si512(p); }
  static inline void store_f(float* p, F x) { _mm512_storeu_ps(p, x); }
  static inline void store_i(void* p, I x) { _mm512_storeu_si512(p, x); }
  static inline I load_u16(const uint16_t* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // Four bytes to every lane.
  static inline I broadcast4(const int8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    return _mm512_set1_epi32(word);
  }

  static inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static inline F add_f(F a, F b) { return _mm512_add_ps(a, b); }
  static inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static inline F max(F a, F b) { return _mm512_max_ps(a, b); }
  static inline F max_abs(F a, F b) { return _mm512_range_ps(a, b, 0xb); }
  static inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static inline F to_f(I x) { return _mm512_cvtepi32_ps(x); }
  static inline I round_i(F x) { return _mm512_cvtps_epi32(x); }
  static inline I add_i(I a, I b) { return _mm512_add_epi32(a, b); }
  static inline I and_i(I a, I b) { return _mm512_and_si512(a, b); }
  template <int kBits>
  static inline I shift_down(I x) {
    return _mm512_srai_epi32(x, kBits);
  }
  template <int kBits>
  static inline I shift_up(I x) {
    return _mm512_slli_epi32(x, kBits);
  }

  // The two bf16 of a lane.
  static inline F low_half(I pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
  static inline F high_half(I pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536)));
  }
  // 2^(-j / 8) of the low six bits j: eight significands, exponents by integer subtraction.
  static inline F scale_below(I word) {
    const __m512 eighths = _mm512_broadcast_f32x8(
        _mm256_setr_ps(1.0f, 0.917004043f, 0.840896415f, 0.771105413f, 0.707106781f, 0.648419777f,
                       0.594603558f, 0.545253866f));
    const I octaves = _mm512_and_si512(_mm512_slli_epi32(word, 20), _mm512_set1_epi32(7 << 23));
    return _mm512_castsi512_ps(
        _mm512_sub_epi32(_mm512_castps_si512(_mm512_permutexvar_ps(word, eighths)), octaves));
  }
  static inline I signed_high_ten(I word) {
    return _mm512_srai_epi32(_mm512_slli_epi32(word, 16), 22);
  }
  // 64 integers to bytes, in order.
  static inline I pack_i8(I a, I b, I c, I d) {
    const I packed = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    const I order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, packed);
  }

  static inline __m128 fold_max(F x) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    return _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
  static inline __m128 fold_sum(F x) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
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
    return _mm512_cmp_ps_mask(_mm512_sub_ps(x, x), zero_f(), _CMP_EQ_OQ) == 0xffff;
  }
  static inline uint32_t not_negative(F x) { return _mm512_cmp_ps_mask(x, zero_f(), _CMP_GE_OQ); }

  // Keeps all fields in registers: stores might alias them.
  static void append(const float* scores, uint64_t mask, int32_t position, Candidates* candidates) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int heads = candidates->heads;
    const int64_t stride = candidates->capacity;
    const int32_t before = candidates->count;
    int32_t* positions = candidates->positions + before;
    float* raw = candidates->raw + before;
    // All four parts: whether one is empty cannot be predicted.
#pragma GCC unroll 1
    for (int i = 0; i < 4; ++i, mask >>= 16, scores += 16, position += 16) {
      const __mmask16 part = static_cast<__mmask16>(mask);
      const int count = __builtin_popcount(part);
      // Compressed in a register, stored whole: compressing stores are microcoded on some cores.
      _mm512_storeu_si512(
          positions,
          _mm512_maskz_compress_epi32(part, _mm512_add_epi32(lanes, _mm512_set1_epi32(position))));
      positions += count;
      float* to = raw;
      const float* from = scores;
      for (int h = 0; h < heads; ++h, to += stride, from += 64) {
        _mm512_storeu_ps(to, _mm512_maskz_compress_ps(part, _mm512_loadu_ps(from)));
      }
      raw += count;
    }
    candidates->count = static_cast<int32_t>(positions - candidates->positions);
  }

  static int32_t find_at_least(const int32_t* keys, int32_t begin, int32_t end, int32_t bound,
                               int32_t* found, int32_t* places) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i least = _mm512_set1_epi32(bound);
    int32_t count = 0;
    for (int32_t first = begin; first < end; first += 16) {
      const __mmask16 inside =
          static_cast<__mmask16>(end - first < 16 ? (1 << (end - first)) - 1 : 0xffff);
      const __m512i at = _mm512_maskz_loadu_epi32(inside, keys + first);
      const __mmask16 part = _mm512_mask_cmpge_epi32_mask(inside, at, least);
      if (part == 0) continue;
      _mm512_storeu_si512(found + count, _mm512_maskz_compress_epi32(part, at));
      _mm512_storeu_si512(
          places + count,
          _mm512_maskz_compress_epi32(part, _mm512_add_epi32(lanes, _mm512_set1_epi32(first))));
      count += __builtin_popcount(part);
    }
    return count;
  }

  static float code_scores(const float* scores, float scale, int16_t* codes) {
    const F lowest = set_f(-kLargestFinite);
    F score[4];
    F best = lowest;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) best = max(best, score[i] = load_f(scores + i * kLanes));
    best = max(best, _mm512_shuffle_f32x4(best, best, _MM_SHUFFLE(1, 0, 3, 2)));
    best = max(best, _mm512_shuffle_f32x4(best, best, _MM_SHUFFLE(2, 3, 0, 1)));
    best = max(best, _mm512_permute_ps(best, _MM_SHUFFLE(1, 0, 3, 2)));
    best = max(best, _mm512_permute_ps(best, _MM_SHUFFLE(2, 3, 0, 1)));
    I code[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const F distance = mul(sub(score[i], best), set_f(scale * kScoreUnits));
      const __mmask16 scored = _mm512_cmp_ps_mask(score[i], lowest, _CMP_GE_OQ);
      // -inf becomes the lowest integer, and that kNoScoreCode.
      code[i] = round_i(_mm512_mask_max_ps(distance, scored, distance, set_f(kLowestScoreCode)));
    }
    const I order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {
      const I packed = _mm512_packs_epi32(code[i], code[i + 1]);
      store_i(codes + i * kLanes, _mm512_permutexvar_epi64(order, packed));
    }
    const float maximum = _mm512_cvtss_f32(best);
    return maximum > -kLargestFinite ? maximum * scale : -__builtin_inff();
  }

  static float take_out(uint64_t taken, float maximum, int16_t* codes) {
    const I none = _mm512_set1_epi16(kNoScoreCode);
    I half[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      half[i] = _mm512_mask_mov_epi16(load_i(codes + i * 32),
                                      static_cast<__mmask32>(taken >> (i * 32)), none);
    }
    const I all = _mm512_max_epi16(half[0], half[1]);
    const __m256i sixteen =
        _mm256_max_epi16(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    const __m128i eight =
        _mm_max_epi16(_mm256_castsi256_si128(sixteen), _mm256_extracti128_si256(sixteen, 1));
    const __m128i below_largest = _mm_xor_si128(eight, _mm_set1_epi16(0x7fff));
    const auto top =
        static_cast<int16_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(below_largest)) ^ 0x7fff);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __mmask32 near = _mm512_cmpgt_epi16_mask(half[i], _mm512_set1_epi16(kLowestScoreCode));
      store_i(codes + i * 32,
              _mm512_mask_sub_epi16(half[i], near, half[i], _mm512_set1_epi16(top)));
    }
    return top > kLowestScoreCode ? maximum + static_cast<float>(top) / kScoreUnits
                                  : -__builtin_inff();
  }
};
