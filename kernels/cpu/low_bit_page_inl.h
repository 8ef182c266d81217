// Attention to a whole page of value codes, by integer products: weights in 8 bits relative to the
// page's largest, four tokens at a time. Codes lie by token, so four tokens' bytes are put side by
// side in each lane; a lane then holds four tokens of one dimension in each plane of bits. The
// page's scales are applied to the sums.
//
// The including file gives, over its vector header: load_quad (kLanes bytes of four tokens, byte by
// byte side by side), ByteSums with dot_bytes (adds products of unsigned weights and codes) and
// widened, and kWideByteSums (sums of a whole page fit in any case).
//
// Rounding of weights: floor(255 w + d), with the offsets d of a page's 64 tokens spread evenly
// over (0, 1). So many small weights keep their sum; rounding to nearest would drop them beside a
// large one. The sum of weights is that of the rounded ones. By estimate the error of a page's part
// is 1.3 % of the spread of its values where one weight dominates, and 0.02 % where all are equal;
// that of the codes is 34 % and 4 % in int2, 7 % and 0.9 % in int4.
#pragma once

#include "kernels/cpu/low_bit_body_types.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"  // of the row bodies only load_scale is used
#include "kernels/cpu/row_low_bit_inl.h"
#pragma GCC diagnostic pop
#include "kernels/low_bit_pages.h"
#include "kernels/softmax_state.h"

namespace fasa::cpu {
namespace {

constexpr int kPageQuads = kMaxPageTokens / 4;
constexpr float kLargestWeight = 255;
// Query heads whose sums fit the registers, with four planes of codes.
constexpr int kPageHeads = kLanes == kChunkLanes ? 4 : 2;

template <int kBits>
struct CodePlanes {
  static constexpr int kWidth = kBits == 2 ? 2 : 4;  // bits of a plane
  static constexpr int kCount = 8 / kWidth;
  static constexpr int kSums = 8 / kBits;  // planes of dimensions: int8 has two halves of a code
  static constexpr int kMask = ((1 << kWidth) - 1) * 0x01010101;
  // Quads of tokens whose sums fit: two products of at most 255 * 3 or 255 * 15 in 16 bits.
  static constexpr int kQuads = kWideByteSums || kWidth == 2 ? kPageQuads : 4;
};

// Offsets of the weights' rounding: the bits of a token's index reversed.
struct RoundingOffsets {
  alignas(64) float of[kMaxPageTokens];
  constexpr RoundingOffsets() : of() {
    for (int t = 0; t < kMaxPageTokens; ++t) {
      int reversed = 0;
      for (int bit = 0; bit < 6; ++bit) reversed |= (t >> bit & 1) << (5 - bit);
      of[t] = (static_cast<float>(reversed) + 0.5f) / kMaxPageTokens;
    }
  }
};

// exp(code / kScoreUnits) for codes up to 0, within 2e-4; 0 for kNoScoreCode and where it is below
// 2^-30. Much cheaper than exp_of.
inline Vec weight_of(Bits code) {
  constexpr float kLog2 = 1.44269504f / kScoreUnits;
  const Vec shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec x = max_of(__builtin_convertvector(code, Vec) * splat(kLog2), splat(-30.0f));
  const Vec shifted = x + shifter;
  const Vec r = x - (shifted - shifter);
  Vec p = fma(splat(0.0558263f), r, splat(0.2401397f));
  p = fma(fma(p, r, splat(0.6931472f)), r, splat(1.0f));
  const Vec power = (Vec)((Bits)p + ((Bits)shifted << 23));
  return (Vec)((Bits)power & (code > int{kNoScoreCode}));
}

// Writes the weights of a page's tokens for one query head; returns their sum.
inline float weigh_page(const int16_t* scores, unsigned char* weights) {
  static constexpr RoundingOffsets kOffsets;
  typedef short Shorts __attribute__((vector_size(kLanes * 2)));
  typedef unsigned char Bytes __attribute__((vector_size(kLanes)));
  Bits sum = {};
  for (int t = 0; t < kMaxPageTokens; t += kLanes) {
    Shorts codes;
    __builtin_memcpy(&codes, scores + t, sizeof(codes));
    const Vec weight = weight_of(__builtin_convertvector(codes, Bits));
    const Bits rounded =
        __builtin_convertvector(fma(weight, splat(kLargestWeight), load(kOffsets.of + t)), Bits);
    sum += rounded;
    const Bytes bytes = __builtin_convertvector(rounded, Bytes);
    __builtin_memcpy(weights + t, &bytes, sizeof(bytes));
  }
  return reduce_add(__builtin_convertvector(sum, Vec));  // exact: at most 64 * 255
}

// Writes the page's scales and offsets in code order, [chunk][plane]{scales[16], offsets[16]}.
template <int kBits>
inline void order_scales(const LowBitPageTask& task) {
  constexpr int kUnit = 32 / kBits;
  float* out = task.scales;
  for (int word = 0; word < task.words; word += kChunkWords) {
    for (int plane = 0; plane < CodePlanes<kBits>::kSums; ++plane, out += 2 * kChunkLanes) {
      alignas(64) unsigned char ordered[kChunkLanes * 2] = {};
      for (int w = 0; w < kChunkWords && word + w < task.words; ++w) {
        __builtin_memcpy(ordered + w * 8, task.parameters + ((word + w) * kUnit + plane * 4) * 2,
                         8);
      }
      for (int at = 0; at < kChunkLanes; at += kLanes) {
        const CodeScale scale = load_scale<kBits>(ordered, task.base, at);
        store(out + at, scale.scale);
        store(out + kChunkLanes + at, scale.offset);
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
      if (next != nullptr) __builtin_prefetch(next + quad * 64, 0, 2);
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
        const Bits plane = (words >> (p * Planes::kWidth)) & Planes::kMask;
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

template <int kBits, int kHeads>
inline void attend_page_heads(const LowBitPageTask& task, int head) {
  using Planes = CodePlanes<kBits>;
  alignas(64) unsigned char weights[kHeads * kMaxPageTokens];
  float factors[kHeads];  // of the page's weights in its block
  float totals[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    totals[h] =
        weigh_page(task.scores + (head + h) * task.score_stride, weights + h * kMaxPageTokens);
    const float maximum = task.maxima[(head + h) * task.maxima_stride];
    factors[h] = maximum == minus_infinity()
                     ? 0.0f
                     : exp_scalar(maximum - task.tops[head + h]) * (1 / kLargestWeight);
    task.totals[head + h] += factors[h] * totals[h];
  }
  const int64_t token_bytes = int64_t{task.words} * 4;
  const float* scales = task.scales;
  float* out = task.sums + head * task.sum_stride;
  for (int word = 0; word < task.words; word += kChunkWords) {
    // As many lines as the chunk has.
    const unsigned char* next =
        head == 0 && task.next != nullptr ? task.next + word / kChunkWords * 1024 : nullptr;
    for (int lane = 0; lane < kChunkLanes; lane += kLanes, next = nullptr) {
      Bits sums[kHeads][Planes::kCount];
      sum_page<kBits, kHeads>(task.codes + word * 4 + lane, token_bytes, next, weights, sums);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        if constexpr (kBits == 8) sums[h][0] += sums[h][1] << 4;
#pragma GCC unroll 4
        for (int p = 0; p < Planes::kSums; ++p) {
          const float* of = scales + p * 2 * kChunkLanes + lane;
          const Vec sum = fma(__builtin_convertvector(sums[h][p], Vec), load(of),
                              load(of + kChunkLanes) * splat(totals[h]));
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
void attend_low_bit_page(const LowBitPageTask& task) {
  if (task.next != nullptr) {  // the parameters; the codes between the products
    const unsigned char* parameters = task.next + (task.parameters - task.codes);
    for (int at = 0; at < task.words * (64 / kBits); at += 64) {
      __builtin_prefetch(parameters + at, 0, 2);
    }
  }
  order_scales<kBits>(task);
  int head = 0;
  for (; head + kPageHeads <= task.group; head += kPageHeads) {
    attend_page_heads<kBits, kPageHeads>(task, head);
  }
  const int left = task.group - head;
  if constexpr (kPageHeads == 4) {
    if (left == 3) attend_page_heads<kBits, 3>(task, head);
    if (left == 2) attend_page_heads<kBits, 2>(task, head);
  }
  if (left == 1) attend_page_heads<kBits, 1>(task, head);
}

}  // namespace
}  // namespace fasa::cpu
