// The width-independent bodies behind ScoreBodies, compiled once per instruction set: the including
// file defines the vector type V in an anonymous namespace, then includes this file into it. Only
// static templates over V and plain loops, nothing that another file might share (target.h).
//
// A page's tokens lie across the lanes and the query is broadcast. kHeads x V::kBlocks accumulators
// hide the latency, and only the query's preparation adds horizontally.
//
// Integer codes, per page and query head, with w = q * scale requantised to weights v of 7 bits and
// sign (int8 codes: 12 and sign, in two planes of 6), w ≈ step * v, and c0 the middle of the codes:
//   S = Σ w (zero + c0) - step c0 Σ v  +  step Σ v code
// The first part is exact in f32, once per page and head. The middle matters: it halves the error
// of requantising. That error by estimate, relative to the codes' own, where the largest weight is
// five times the root mean square: int2 0.04, int4 0.14, int8 0.06 (with 7 bits it would be 2).
//
// Measured on one core of Sapphire Rapids at 3.1 GHz, four query heads, a page of 64 tokens in the
// cache: int2 of 128 dimensions 208 ns (its 512 vpdpbusd take 95 alone), of 64 dimensions 128 ns,
// int4 of 128 203 ns, int8 of 32 in two planes 118 ns, bf16 of 32 130 ns; AVX-512 without VNNI 382,
// 218, 388, 186 and 130, AVX2 559, 282, 552, 258 and 268. Int2 codes masked in place instead of
// shifted to the low bits: 176 instead of 224 instructions a page around the products. Not tried:
// preparing the next page's query between this page's dot products, which would hide the latency of
// the preparation (the reductions and the division).

template <int kBits>
struct CodeTraits {
  static constexpr int kUnit = 32 / kBits;            // dimensions per lane
  static constexpr int kPlanes = kBits == 8 ? 2 : 1;  // planes of weights
  static constexpr int kPasses = kBits == 8 ? 2 : 8 / kBits;
  static constexpr float kLargest = kBits == 8 ? 4095.0f : 127.0f;
  static constexpr float kMiddle = static_cast<float>((1 << kBits) - 1) / 2;
};
constexpr int kPlaneBits = 6;
constexpr int kPage = 64;

// The token-independent part of a page's score, and the step of the weights.
struct Prepared {
  alignas(64) float step[4];
  alignas(64) float offset[4];
};

// Writes weights v to query.codes[plane][head][stride]. False if the scores may not be finite.
template <class V, int kBits, int kHeads>
static inline bool prepare(const PageQuery& query, const uint16_t* parameters, float base,
                           Prepared* out) {
  using Traits = CodeTraits<kBits>;
  typename V::F largest[4];
  typename V::F sum[4];
#pragma GCC unroll 4
  for (int h = 0; h < 4; ++h) largest[h] = sum[h] = V::zero_f();
  for (int d = 0; d < query.dims; d += V::kLanes) {
    const typename V::I word = V::load_u16(parameters + d);
    const typename V::F scale = V::mul(V::scale_below(word), V::set_f(base));
    const typename V::F zero = V::fma(V::to_f(V::signed_high_ten(word)), V::set_f(kZeroUnit<kBits>),
                                      V::set_f(Traits::kMiddle));
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const typename V::F w = V::mul(V::load_f(query.q + h * query.stride + d), scale);
      V::store_f(query.weights + h * query.stride + d, w);
      largest[h] = V::max_abs(largest[h], w);
      sum[h] = V::fma(w, zero, sum[h]);
    }
  }
  alignas(64) float inverse[4];
  if (!V::steps_of(largest, Traits::kLargest, out->step, inverse)) return false;
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
    const float* weights = query.weights + h * query.stride;
    const typename V::F scale = V::set_f(inverse[h]);
    typename V::I total = V::zero_i();
    for (int d = 0; d < query.stride; d += 4 * V::kLanes) {
      int8_t* codes = query.codes + h * query.stride + d;
      typename V::I v[4];
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) {
        v[r] = V::round_i(V::mul(V::load_f(weights + d + r * V::kLanes), scale));
        if constexpr (Traits::kPlanes == 2) total = V::add_i(total, v[r]);
      }
      if constexpr (Traits::kPlanes == 1) {
        const typename V::I packed = V::pack_i8(v[0], v[1], v[2], v[3]);
        V::store_i(codes, packed);
        total = V::dot(total, V::ones_u8(), packed);
      } else {
        V::store_i(codes, V::pack_i8(V::template shift_down<kPlaneBits>(v[0]),
                                     V::template shift_down<kPlaneBits>(v[1]),
                                     V::template shift_down<kPlaneBits>(v[2]),
                                     V::template shift_down<kPlaneBits>(v[3])));
        const typename V::I low = V::set_i((1 << kPlaneBits) - 1);
        V::store_i(codes + kScoreHeads * query.stride,
                   V::pack_i8(V::and_i(v[0], low), V::and_i(v[1], low), V::and_i(v[2], low),
                              V::and_i(v[3], low)));
      }
    }
    sum[h] = V::fma(V::to_f(total), V::set_f(-Traits::kMiddle * out->step[h]), sum[h]);
  }
  return V::sums_of(sum, out->offset);
}

// The codes of pass `pass` in a register of four code bytes per token, and the accumulator's shift
// before it. Codes of 2 and 4 bits stay in place if bytes of 192 * 127 do not saturate (shifting 16
// accumulators is cheaper than shifting every register): highest codes first, then the sum is
// shifted down, exactly.
template <class V, int kBits>
struct Pass {
  static constexpr bool kInPlace = V::kWideDot && kBits != 8;
  template <int kPass>
  static inline typename V::I codes(typename V::I packed) {
    if constexpr (kBits == 8) return packed;
    constexpr int kShift = (8 / kBits - 1 - kPass) * kBits;
    constexpr unsigned kMask = ((1u << kBits) - 1) * 0x01010101u;
    if constexpr (kInPlace) {
      return V::and_i(packed, V::set_i(static_cast<int>(kMask << kShift)));
    } else {
      return V::and_i(V::template shift_down<kShift>(packed), V::set_i(static_cast<int>(kMask)));
    }
  }
  static inline typename V::I between(typename V::I sum) {
    if constexpr (kBits == 8) return V::template shift_up<kPlaneBits>(sum);
    if constexpr (kInPlace) return V::template shift_down<kBits>(sum);
    return sum;
  }
  // Start of the weights of group g: a plane for int8, else four of the group's dimensions.
  template <int kPass>
  static inline int weights_at(int group, int stride) {
    if constexpr (kBits == 8) return kPass * kScoreHeads * stride + group * 4;
    return group * CodeTraits<kBits>::kUnit + (8 / kBits - 1 - kPass) * 4;
  }
};

template <class V, int kBits, int kHeads, int kPass>
static inline void run_pass(const PageQuery& query, const uint8_t* page, const char* next,
                            typename V::I (&sums)[kHeads][V::kBlocks]) {
  using P = Pass<V, kBits>;
  constexpr int kLines = 4 / CodeTraits<kBits>::kPasses;  // to fetch per group and pass
  const int groups = query.dims / CodeTraits<kBits>::kUnit;
  if (kPass > 0) {
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int b = 0; b < V::kBlocks; ++b) sums[h][b] = P::between(sums[h][b]);
    }
  }
  for (int g = 0; g < groups; ++g) {
    if (next != nullptr) {
#pragma GCC unroll 4
      for (int line = 0; line < kLines; ++line) {
        __builtin_prefetch(next + (static_cast<int64_t>(kPass * groups + g) * kLines + line) * 64,
                           0, 2);
      }
    }
    typename V::I weights[kHeads];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      weights[h] = V::broadcast4(query.codes + h * query.stride +
                                 P::template weights_at<kPass>(g, query.stride));
    }
#pragma GCC unroll 4
    for (int b = 0; b < V::kBlocks; ++b) {
      const typename V::I codes =
          P::template codes<kPass>(V::load_i(page + g * kPage * 4 + b * V::kLanes * 4));
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) sums[h][b] = V::dot(sums[h][b], codes, weights[h]);
    }
  }
}

template <class V, int kBits, int kHeads>
static bool score_codes(const PageQuery& query, const std::byte* page, float base,
                        const std::byte* next, float* scores) {
  const int64_t code_bytes = query.code_bytes;
  const uint16_t* parameters = reinterpret_cast<const uint16_t*>(page + code_bytes);
  Prepared prepared;
  if (!prepare<V, kBits, kHeads>(query, parameters, base, &prepared)) return false;
  if (next != nullptr) {
    for (int d = 0; d < query.dims; d += 32) {
      __builtin_prefetch(reinterpret_cast<const char*>(next) + code_bytes + d * 2, 0, 2);
    }
  }
  for (int first = 0; first < kPage; first += V::kLanes * V::kBlocks) {
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(page) + first * 4;
    const char* ahead = first == 0 ? reinterpret_cast<const char*>(next) : nullptr;
    typename V::I sums[kHeads][V::kBlocks];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int b = 0; b < V::kBlocks; ++b) sums[h][b] = V::zero_i();
    }
    run_pass<V, kBits, kHeads, 0>(query, codes, ahead, sums);
    run_pass<V, kBits, kHeads, 1>(query, codes, ahead, sums);
    if constexpr (kBits == 2) {
      run_pass<V, kBits, kHeads, 2>(query, codes, ahead, sums);
      run_pass<V, kBits, kHeads, 3>(query, codes, ahead, sums);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const typename V::F step = V::set_f(prepared.step[h]);
      const typename V::F offset = V::set_f(prepared.offset[h]);
#pragma GCC unroll 4
      for (int b = 0; b < V::kBlocks; ++b) {
        V::store_f(scores + h * kPage + first + b * V::kLanes,
                   V::fma(V::to_f(sums[h][b]), step, offset));
      }
    }
  }
  return true;
}

// bf16 (kPairs) or f32 pages: plain dot products, a pair of dimensions or one at a time.
template <class V, bool kPairs, int kHeads>
static bool score_floats(const PageQuery& query, const std::byte* page, float,
                         const std::byte* next, float* scores) {
  constexpr int kTokenBytes = 4;
  const int groups = kPairs ? query.dims / 2 : query.dims;
  typename V::F check = V::zero_f();
  for (int first = 0; first < kPage; first += V::kLanes * V::kBlocks) {
    const std::byte* tokens = page + first * kTokenBytes;
    typename V::F sums[kHeads][V::kBlocks];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int b = 0; b < V::kBlocks; ++b) sums[h][b] = V::zero_f();
    }
    for (int g = 0; g < groups; ++g) {
      if (next != nullptr && first == 0) {
#pragma GCC unroll 4
        for (int line = 0; line < 4; ++line) {
          __builtin_prefetch(reinterpret_cast<const char*>(next) + g * kPage * 4 + line * 64, 0, 2);
        }
      }
#pragma GCC unroll 4
      for (int b = 0; b < V::kBlocks; ++b) {
        const std::byte* at = tokens + g * kPage * kTokenBytes + b * V::kLanes * kTokenBytes;
        const float* q = query.q + (kPairs ? g * 2 : g);
        if constexpr (kPairs) {
          const typename V::I pairs = V::load_i(at);
          const typename V::F low = V::low_half(pairs);
          const typename V::F high = V::high_half(pairs);
#pragma GCC unroll 4
          for (int h = 0; h < kHeads; ++h) {
            sums[h][b] = V::fma(low, V::set_f(q[h * query.stride]), sums[h][b]);
            sums[h][b] = V::fma(high, V::set_f(q[h * query.stride + 1]), sums[h][b]);
          }
        } else {
          const typename V::F values = V::load_f(reinterpret_cast<const float*>(at));
#pragma GCC unroll 4
          for (int h = 0; h < kHeads; ++h) {
            sums[h][b] = V::fma(values, V::set_f(q[h * query.stride]), sums[h][b]);
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int b = 0; b < V::kBlocks; ++b) {
        check = V::add_f(check, sums[h][b]);  // not finite if any is not
        V::store_f(scores + h * kPage + first + b * V::kLanes, sums[h][b]);
      }
    }
  }
  return V::all_finite(check);
}

template <class V, int kBits>
static bool score_codes_any(const PageQuery& query, const std::byte* page, float base,
                            const std::byte* next, float* scores) {
  switch (query.heads) {
    case 1:
      return score_codes<V, kBits, 1>(query, page, base, next, scores);
    case 2:
      return score_codes<V, kBits, 2>(query, page, base, next, scores);
    case 3:
      return score_codes<V, kBits, 3>(query, page, base, next, scores);
    default:
      return score_codes<V, kBits, 4>(query, page, base, next, scores);
  }
}

template <class V, bool kPairs>
static bool score_floats_any(const PageQuery& query, const std::byte* page, float base,
                             const std::byte* next, float* scores) {
  switch (query.heads) {
    case 1:
      return score_floats<V, kPairs, 1>(query, page, base, next, scores);
    case 2:
      return score_floats<V, kPairs, 2>(query, page, base, next, scores);
    case 3:
      return score_floats<V, kPairs, 3>(query, page, base, next, scores);
    default:
      return score_floats<V, kPairs, 4>(query, page, base, next, scores);
  }
}

template <class V>
static uint64_t filter_page(const float* scores, int heads, const float* bounds) {
  uint64_t mask = 0;
  for (int first = 0; first < kPage; first += V::kLanes) {
    typename V::F above = V::sub(V::load_f(scores + first), V::set_f(bounds[0]));
    for (int h = 1; h < heads; ++h) {
      above = V::max(above, V::sub(V::load_f(scores + h * kPage + first), V::set_f(bounds[h])));
    }
    mask |= static_cast<uint64_t>(V::not_negative(above)) << first;
  }
  return mask;
}

static inline int32_t ordered_key(float value) {
  int32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

static void relative_keys_of(const float* raw, int64_t stride, int heads, int32_t count,
                             const float* maxima, int32_t* keys) {
  constexpr int kBlock = 64;
  for (int32_t first = 0; first < count; first += kBlock) {
    const int n = count - first < kBlock ? count - first : kBlock;
    float best[kBlock];
    for (int t = 0; t < n; ++t) best[t] = raw[first + t] - maxima[0];
    for (int h = 1; h < heads; ++h) {
      const float* of_head = raw + h * stride + first;
      for (int t = 0; t < n; ++t) {
        const float relative = of_head[t] - maxima[h];
        best[t] = relative > best[t] ? relative : best[t];
      }
    }
    for (int t = 0; t < n; ++t) keys[first + t] = ordered_key(best[t]);
  }
}

template <class V>
static void raise_maxima_of(const float* raw, int64_t stride, int heads, int32_t count,
                            float* maxima) {
  for (int h = 0; h < heads; ++h) {
    const float* of_head = raw + h * stride;
    alignas(64) float lanes[V::kLanes];
    typename V::F best = V::set_f(maxima[h]);
    int32_t t = 0;
    for (; t + V::kLanes <= count; t += V::kLanes)
      best = V::max(best, V::load_unaligned(of_head + t));
    V::store_f(lanes, best);
    float largest = lanes[0];
    for (int lane = 1; lane < V::kLanes; ++lane) {
      largest = lanes[lane] > largest ? lanes[lane] : largest;
    }
    for (; t < count; ++t) largest = of_head[t] > largest ? of_head[t] : largest;
    maxima[h] = largest;
  }
}

static int32_t count_keys(const int32_t* keys, int32_t count, int32_t bound) {
  int32_t found = 0;
  for (int32_t t = 0; t < count; ++t) found += keys[t] >= bound ? 1 : 0;
  return found;
}

#include "kernels/cpu/rows/soft_cap_inl.h"

template <class V>
static void soft_cap_all(float* scores, int32_t count, float cap) {
  for (int32_t i = 0; i < count; i += V::kLanes) {
    V::store_f(scores + i, soft_capped<typename V::F>(V::load_f(scores + i), cap));
  }
}

template <class V>
static float code_scores_of(const float* scores, float scale, int16_t* codes) {
  constexpr float kLowest = kLowestScoreCode;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  float maximum = -kLargestFinite;
  raise_maxima_of<V>(scores, kPage, 1, kPage, &maximum);
  const float units = scale * kScoreUnits;
  for (int t = 0; t < kPage; ++t) {
    const float distance = (scores[t] - maximum) * units;
    const float rounded = (distance > kLowest ? distance : kLowest) + kRound - kRound;
    const int32_t code = static_cast<int32_t>(rounded);
    codes[t] = static_cast<int16_t>(scores[t] >= -kLargestFinite ? code : int32_t{kNoScoreCode});
  }
  return maximum > -kLargestFinite ? maximum * scale : -__builtin_inff();
}

static float take_out_of(uint64_t taken, float maximum, int16_t* codes) {
  for (; taken != 0; taken &= taken - 1) codes[__builtin_ctzll(taken)] = kNoScoreCode;
  int16_t top = kNoScoreCode;
  for (int t = 0; t < kPage; ++t) top = codes[t] > top ? codes[t] : top;
  if (top <= kLowestScoreCode) return -__builtin_inff();
  for (int t = 0; t < kPage; ++t) {
    codes[t] = static_cast<int16_t>(codes[t] <= kLowestScoreCode ? codes[t] : codes[t] - top);
  }
  return maximum + static_cast<float>(top) / kScoreUnits;
}

template <class V, int... kBits>
constexpr ScoreBodies bodies_of(CodeWidths<kBits...>) {
  ScoreBodies bodies = {
      {score_floats_any<V, false>, score_floats_any<V, true>, score_codes_any<V, kBits>...},
      filter_page<V>,
      V::append,
      relative_keys_of,
      raise_maxima_of<V>,
      count_keys,
      V::find_at_least,
      soft_cap_all<V>,
      code_scores_of<V>,
      take_out_of};
  if constexpr (V::kOwnCodes) {
    bodies.code_scores = V::code_scores;
    bodies.take_out = V::take_out;
  }
  return bodies;
}
