// Attention to whole pages of value codes, by integer products: weights in 8 bits relative to the
// page's largest, four tokens at a time. Codes lie by token, so four tokens' bytes are put side by
// side in each lane; a lane then holds four tokens of one dimension in each plane of bits. The
// page's scales are applied to the sums.
//
// The including file gives, over its vector header: load_quad (kLanes bytes of four tokens, byte by
// byte side by side), ByteSums with dot_bytes (adds products of unsigned weights and codes) and
// widened, kInPlace (codes are signed, and sums of a whole page fit in any case), and weigh_page
// (low_bit_weights_inl.h).
//
// Measured on one core of a Zen 4 at 3.6 GHz, four query heads and 128 dimensions in int2, in the
// cache: 225 ns a page, of which its 512 vpdpbusd take 142 and what lies between them 28. Without
// effect: building quads of two chunks by one permutation of two registers, ordering parameters in
// whole registers. Slower: prefetching scores, or codes two pages ahead.
#pragma once

#include "kernels/cpu/low_bit_body_types.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"  // of the row bodies only load_scale is used
#include "kernels/cpu/rows/row_low_bit_inl.h"
#pragma GCC diagnostic pop
#include "kernels/low_bit_pages.h"
#include "kernels/softmax_state.h"

namespace fasa::cpu {
namespace {

constexpr int kPageQuads = kMaxPageTokens / 4;
// Query heads whose sums fit the registers, with four planes of codes.
constexpr int kPageHeads = kLanes == kChunkLanes ? 4 : 2;

// The parts of a byte of codes that are multiplied one by one. In place, a code is multiplied by a
// power of two, and the highest bit of a byte is flipped, so that the byte is a signed number.
template <int kBits>
struct CodePlanes {
  static constexpr int kWidth = kBits == 8 && !kInPlace ? 4 : kBits;  // bits of a plane
  static constexpr int kCount = 8 / kWidth;
  static constexpr int kSums =
      8 / kBits;  // planes of dimensions: int8 may have two halves of a code
  static constexpr int kMask = (1 << kWidth) - 1;
  // Quads of tokens whose sums fit: two products of at most 255 * 3 or 255 * 15 in 16 bits.
  static constexpr int kQuads = kInPlace || kWidth == 2 ? kPageQuads : 4;

  static inline Bits of(Bits words, int plane) {
    if constexpr (!kInPlace) return (words >> (plane * kWidth)) & kMask * 0x01010101;
    const Bits part = words & static_cast<int>((kMask << (plane * kWidth)) * 0x01010101u);
    return plane + 1 < kCount ? part : part ^ static_cast<int>(0x80808080u);
  }
  static constexpr float unit(int plane) {
    return kInPlace ? 1.0f / static_cast<float>(1 << (plane * kWidth)) : 1.0f;
  }
  static constexpr float middle(int plane) {
    return kInPlace && plane + 1 == kCount ? static_cast<float>(1 << (kWidth - 1)) : 0.0f;
  }
};

inline float find_factors(const float* maxima, int count, float* factors) {
  alignas(64) float padded[kLowBitBlockPages];
  if (count < kLowBitBlockPages) {
    for (int i = 0; i < kLowBitBlockPages; ++i) {
      padded[i] = i < count ? maxima[i] : minus_infinity();
    }
    maxima = padded;
  }
  Vec top = load(maxima);
  for (int i = kLanes; i < kLowBitBlockPages; i += kLanes) top = max_of(load(maxima + i), top);
  const float largest = reduce_max(top);
  for (int i = 0; i < kLowBitBlockPages; i += kLanes) {
    const Vec maximum = load(maxima + i);
    const Vec factor = exp_of(maximum - splat(largest)) * splat(1 / kLargestWeight);
    store(factors + i, maximum == splat(minus_infinity()) ? Vec{} : factor);
  }
  return largest;
}

// Writes a page's scales and offsets in code order, [chunk][plane]{scales[16], offsets[16]}.
template <int kBits>
inline void order_scales(const unsigned char* parameters, int words, float base, float* out) {
  using Planes = CodePlanes<kBits>;
  constexpr int kUnit = 32 / kBits;
  typedef uint64_t Fours __attribute__((vector_size(kLanes * 2)));  // parameters, four in each
  typedef short Halves __attribute__((vector_size(kLanes * 2)));
  constexpr int kFours = kLanes / 4;
  for (int word = 0; word < words; word += kChunkWords) {
#pragma GCC unroll 4
    for (int plane = 0; plane < Planes::kSums; ++plane, out += 2 * kChunkLanes) {
#pragma GCC unroll 4
      for (int at = 0; at < kChunkWords; at += kFours) {
        Fours four = {};
#pragma GCC unroll 4
        for (int i = 0; i < kFours; ++i) {
          const int from = word + at + i < words ? word + at + i : word;
          uint64_t one;
          __builtin_memcpy(&one, parameters + (from * kUnit + plane * 4) * 2, sizeof(one));
          four[i] = one;
        }
        const CodeScale scale = code_scale<kBits>(__builtin_convertvector((Halves)four, Bits), base,
                                                  Planes::unit(plane), Planes::middle(plane));
        store(out + at * 4, scale.scale);
        store(out + kChunkLanes + at * 4, scale.offset);
      }
    }
  }
}

// The integer sums of kLanes bytes of every token's codes, for kHeads query heads and each plane.
template <int kBits, int kHeads>
inline void sum_page(const unsigned char* codes, int64_t token_bytes, const unsigned char* next,
                     const unsigned char* weights,
                     Bits (&sums)[kHeads][CodePlanes<kBits>::kCount]) {
  using Planes = CodePlanes<kBits>;
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int p = 0; p < Planes::kCount; ++p) sums[h][p] = Bits{};
  }
  for (int first = 0; first < kPageQuads; first += Planes::kQuads) {
    ByteSums some[kHeads][Planes::kCount] = {};
    for (int quad = first; quad < first + Planes::kQuads; ++quad) {
      if (next != nullptr) __builtin_prefetch(next + quad * 64);
      const Bits words = load_quad(codes + quad * 4 * token_bytes, token_bytes);
      Bits weight[kHeads];
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        int four;
        __builtin_memcpy(&four, weights + h * kMaxPageTokens + quad * 4, sizeof(four));
        weight[h] = Bits{} + four;
      }
#pragma GCC unroll 4
      for (int p = 0; p < Planes::kCount; ++p) {
        const Bits plane = Planes::of(words, p);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) some[h][p] = dot_bytes(some[h][p], weight[h], plane);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int p = 0; p < Planes::kCount; ++p) sums[h][p] += widened(some[h][p]);
    }
  }
}

// `next`: codes of the page to prefetch, or null.
template <int kBits, int kHeads>
inline void attend_page_heads(const LowBitPagesTask& task, int page, int head,
                              const unsigned char* next) {
  using Planes = CodePlanes<kBits>;
  alignas(64) unsigned char weights[kHeads * kMaxPageTokens];
  float factors[kHeads];
  float totals[4];
  weigh_page<kHeads>(task.scores + head * task.score_stride + page * kMaxPageTokens,
                     task.score_stride, weights, totals);
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
    factors[h] = task.factors[(head + h) * kLowBitBlockPages + page];
    task.totals[head + h] += factors[h] * totals[h];
  }
  const int64_t token_bytes = int64_t{task.words} * 4;
  const float* scales = task.scales;
  float* out = task.sums + head * task.sum_stride;
  for (int word = 0; word < task.words; word += kChunkWords) {
    // As many lines as the chunk has.
    const unsigned char* ahead = next == nullptr ? nullptr : next + word / kChunkWords * 1024;
    for (int lane = 0; lane < kChunkLanes; lane += kLanes, ahead = nullptr) {
      Bits sums[kHeads][Planes::kCount];
      sum_page<kBits, kHeads>(task.codes[page] + word * 4 + lane, token_bytes, ahead, weights,
                              sums);
#pragma GCC unroll 4
      for (int p = 0; p < Planes::kSums; ++p) {
        const Vec scale = load(scales + p * 2 * kChunkLanes + lane);
        const Vec offset = load(scales + (p * 2 + 1) * kChunkLanes + lane);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
          Bits of_codes = sums[h][p];
          if constexpr (Planes::kCount > Planes::kSums) of_codes += sums[h][1] << 4;
          const Vec sum =
              fma(__builtin_convertvector(of_codes, Vec), scale, offset * splat(totals[h]));
          float* to = out + h * task.sum_stride + p * kChunkLanes + lane;
          store(to, fma(splat(factors[h]), sum, load(to)));
        }
      }
    }
    scales += 2 * kChunkLanes * Planes::kSums;
    out += kChunkLanes * Planes::kSums;
  }
}

template <int kBits>
void attend_low_bit_pages(const LowBitPagesTask& task) {
  for (int page = 0; page < task.pages; ++page) {
    const unsigned char* next = task.codes[page + 1];
    if (next != nullptr) {  // the codes between the products
      for (int at = 0; at < task.words * (64 / kBits); at += 64) {
        __builtin_prefetch(next + task.code_bytes + at);
      }
    }
    order_scales<kBits>(task.codes[page] + task.code_bytes, task.words, task.bases[page],
                        task.scales);
    int head = 0;
    for (; head + kPageHeads <= task.group; head += kPageHeads, next = nullptr) {
      attend_page_heads<kBits, kPageHeads>(task, page, head, next);
    }
    const int left = task.group - head;
    if constexpr (kPageHeads == 4) {
      if (left == 3) attend_page_heads<kBits, 3>(task, page, head, next);
      if (left == 2) attend_page_heads<kBits, 2>(task, page, head, next);
    }
    if (left == 1) attend_page_heads<kBits, 1>(task, page, head, next);
  }
}

template <int... kBits>
constexpr LowBitBodies bodies_of(CodeWidths<kBits...>) {
  return {{attend_low_bit_pages<kBits>...}, find_factors};
}
constexpr LowBitBodies kLowBitBodies = bodies_of(AllCodeWidths());

}  // namespace
}  // namespace fasa::cpu
