// Scores a page of codes by one warp (page_scorer_inl.h): tensor cores, f16, tokens x query heads.
// With w = q * scale (q scaled to a magnitude near 1 by a power of two, scales relative to the
// page's base):
//
//     S = (Σ w zero + Σ f16(w) code) * base
//
// Codes are used without conversion: a code's bits, masked out of its word, are the subnormal f16
// code * 2^(place - 24), and the weight is multiplied by 2^-place. So unpacking costs one mask per
// two codes, and weights of 11 bits need no maximum over the page, which integer products with
// 7-bit weights would. Error of a weight: 2^-12, of a code: 1/2.
#pragma once

#include "kernels/code_width.h"
#include "kernels/cuda/math_inl.h"
#include "kernels/cuda/mma_inl.h"
#include "kernels/cuda/select/scorer_memory_inl.h"

namespace fasa::cuda {

class CodeScorer {
 public:
  FASA_DEVICE explicit CodeScorer(const ScorerMemory& memory) : memory_(memory) {}

  // Scores a page of codes and its base; what a query that is not finite gives is undefined.
  FASA_DEVICE void score(const std::byte* page, float base) const {
    with_code_width(slice_bits(memory_.format.dtype), AllCodeWidths(),
                    [&]<int kBits>() { score_codes<kBits>(page, base); });
  }

  // The same for queries [first, first + count), which may be any, without tensor cores.
  FASA_DEVICE void score_one_by_one(const std::byte* page, float base, int first, int count) const {
    const int bits = slice_bits(memory_.format.dtype);
    const int unit = 32 / bits;
    const auto* parameters = reinterpret_cast<const uint16_t*>(page + memory_.format.code_bytes());
    const float* eighths = memory_.eighths();
    const float zero_unit = static_cast<float>(1 << bits) / 8;
    for (int i = simt::lane(); i < count * kPageTokens; i += simt::kWarpThreads) {
      const int head = first + i / kPageTokens;
      const int token = i % kPageTokens;
      float sum = 0;
      for (int d = 0; d < memory_.dims; ++d) {
        const auto byte = static_cast<uint32_t>(page[(d / unit * kPageTokens + token) * 4 + d % 4]);
        const uint32_t code = byte >> (d % unit / 4 * bits) & ((1u << bits) - 1);
        const auto parameter = static_cast<int16_t>(parameters[d]);
        const float value =
            base * eighths[parameter & 63] *
            (static_cast<float>(parameter >> 6) * zero_unit + static_cast<float>(code));
        sum = simt::fused(memory_.query(head, d), value, sum);
      }
      memory_.scores(head)[token] = sum * memory_.unscale(head);
    }
  }

 private:
  template <int kBits>
  struct Codes {
    static constexpr int kUnit = 32 / kBits;   // dimensions of a word
    static constexpr int kPairs = kUnit / 2;   // f16 pairs of a word
    static constexpr int kPlaces = 8 / kBits;  // codes of a byte

    // Pair r holds the codes at place r % kPlaces of bytes r / kPlaces and r / kPlaces + 2.
    FASA_DEVICE static uint32_t pair(uint32_t word, int r) {
      constexpr uint32_t kMask = ((1u << kBits) - 1) * 0x00010001u;
      return (word >> (r / kPlaces * 8)) & (kMask << (r % kPlaces * kBits));
    }
    // Dimension, within the word's, of the low half of pair r; the high half is two dimensions
    // further.
    FASA_DEVICE static constexpr int dim(int r) { return r % kPlaces * 4 + r / kPlaces; }
    FASA_DEVICE static constexpr float weight_scale(int r) {
      return 1.0f / static_cast<float>(1 << (r % kPlaces * kBits));
    }
  };

  // A word's weights, in as few vector accesses as possible.
  template <int kBits>
  struct Weights {
    static constexpr int kPairs = Codes<kBits>::kPairs;
    static constexpr int kEach = kPairs < 4 ? kPairs : 4;  // pairs of a vector
    struct alignas(4 * kEach) Vector {
      uint32_t pairs[kEach];
    };
    uint32_t pairs[kPairs];

    FASA_DEVICE static Vector& at(uint32_t* weights, int word, int i) {
      return reinterpret_cast<Vector*>(
          weights)[ScorerBanks::weights<kBits>(word * (kPairs / kEach) + i)];
    }
    FASA_DEVICE void store(uint32_t* weights, int word) const {
      FASA_UNROLL
      for (int i = 0; i < kPairs / kEach; ++i) {
        Vector vector;
        FASA_UNROLL
        for (int r = 0; r < kEach; ++r) vector.pairs[r] = pairs[i * kEach + r];
        at(weights, word, i) = vector;
      }
    }
    FASA_DEVICE void load(uint32_t* weights, int word) {
      FASA_UNROLL
      for (int i = 0; i < kPairs / kEach; ++i) {
        const Vector vector = at(weights, word, i);
        FASA_UNROLL
        for (int r = 0; r < kEach; ++r) pairs[i * kEach + r] = vector.pairs[r];
      }
    }
  };

  // Weights of heads [first, first + count), and the term of their scores that all tokens share, by
  // words: each lane computes some (head, word).
  template <int kBits>
  FASA_DEVICE void prepare(const std::byte* page, int first, int count, int words) const {
    using C = Codes<kBits>;
    const std::byte* parameters = page + memory_.format.code_bytes();
    const float* eighths = memory_.eighths();
    constexpr int kAtOnce = C::kUnit < 8 ? C::kUnit : 8;  // dimensions whose parameters are read
    struct alignas(2 * kAtOnce) Parameters {
      uint32_t pairs[kAtOnce / 2];
    };
    for (int i = simt::lane(); i < count * words; i += simt::kWarpThreads) {
      // i / words, half a word away from any rounding.
      const int head = static_cast<int>((static_cast<float>(i) + 0.5f) * memory_.of_words);
      const int word = i - head * words;
      float weight[C::kUnit];
      float offset = 0;
      FASA_UNROLL
      for (int begin = 0; begin < C::kUnit; begin += kAtOnce) {
        const Parameters read =
            reinterpret_cast<const Parameters*>(parameters)[(word * C::kUnit + begin) / kAtOnce];
        FASA_UNROLL
        for (int d = begin; d < begin + kAtOnce; d += 4) {
          const ScorerMemory::Four of_query = memory_.four(first + head, word * C::kUnit + d);
          FASA_UNROLL
          for (int j = 0; j < 4; ++j) {
            const uint32_t two = read.pairs[(d - begin + j) / 2];
            const auto parameter = static_cast<int16_t>(j % 2 == 0 ? two & 0xffffu : two >> 16);
            const float zero = static_cast<float>(parameter >> 6) * kZeroUnit<kBits>;
            weight[d + j] = of_query.values[j] * eighths[parameter & 63];
            offset = simt::fused(weight[d + j], zero, offset);
          }
        }
      }
      Weights<kBits> packed;
      FASA_UNROLL
      for (int r = 0; r < C::kPairs; ++r) {
        packed.pairs[r] = pack_f16(weight[C::dim(r)] * C::weight_scale(r),
                                   weight[C::dim(r) + 2] * C::weight_scale(r));
      }
      packed.store(memory_.weights(), i);
      memory_.offsets()[i] = offset;
    }
  }

  template <int kBits>
  FASA_DEVICE void score_codes(const std::byte* page, float base) const {
    for (int first = 0; first < memory_.layout.queries; first += kMmaHeads) {
      const int left = memory_.layout.queries - first;
      score_heads<kBits>(page, base, first, left < kMmaHeads ? left : kMmaHeads);
    }
  }

  // Lane (row, c) has words [4 chunk + c] of tokens 4 row to 4 row + 3 of each half of the page.
  // All codes of a word are in one lane, so a product's inner index is (c, pair), and the lane's
  // weights are those of head `row` and the same word.
  template <int kBits>
  FASA_DEVICE void score_heads(const std::byte* page, float base, int first, int count) const {
    using C = Codes<kBits>;
    const int words = SliceFormat{memory_.format.dtype, memory_.dims}.padded_dims() / C::kUnit;
    const int row = simt::lane() / 4;
    const int c = simt::lane() % 4;
    float sums[2][2][4] = {};  // [half of the page][pair of tokens]
    bool prepared = false;
    for (int chunk = 0; chunk < words; chunk += 4) {
      const int word = chunk + c;
      simt::Word16 tokens[2] = {};
      if (word < words) {
        const auto* at = reinterpret_cast<const simt::Word16*>(page + word * kPageTokens * 4);
        tokens[0] = at[row];
        tokens[1] = at[row + 8];
      }
      if (!prepared) {  // after the first loads, to hide their latency
        prepare<kBits>(page, first, count, words);
        simt::sync_warp();
        prepared = true;
      }
      Weights<kBits> of_word = {};
      if (row < count && word < words) of_word.load(memory_.weights(), row * words + word);
      FASA_UNROLL
      for (int r = 0; r < C::kPairs; r += 2) {
        const uint32_t b[2] = {of_word.pairs[r], of_word.pairs[r + 1]};
        FASA_UNROLL
        for (int half = 0; half < 2; ++half) {
          FASA_UNROLL
          for (int pair = 0; pair < 2; ++pair) {
            const uint32_t even = tokens[half].words[2 * pair];
            const uint32_t odd = tokens[half].words[2 * pair + 1];
            const uint32_t a[4] = {C::pair(even, r), C::pair(odd, r), C::pair(even, r + 1),
                                   C::pair(odd, r + 1)};
            mma_f16(sums[half][pair], a, b);
          }
        }
      }
    }
    write_sums(sums, base, first, count, words);
  }

  FASA_DEVICE void write_sums(const float (&sums)[2][2][4], float base, int first, int count,
                              int words) const {
    const int row = simt::lane() / 4;
    for (int which = 0; which < 2; ++which) {
      const int head = simt::lane() % 4 * 2 + which;
      if (head >= count) continue;
      float offset = 0;
      for (int word = 0; word < words; ++word) offset += memory_.offsets()[head * words + word];
      const float back = memory_.unscale(first + head);
      float* out = memory_.scores(first + head) + 4 * row;
      FASA_UNROLL
      for (int half = 0; half < 2; ++half) {
        simt::Word16 four_tokens;
        FASA_UNROLL
        for (int i = 0; i < 4; ++i) {  // pair i / 2, odd i % 2
          const float sum = sums[half][i / 2][2 * (i % 2) + which] * 16777216.0f;
          four_tokens.words[i] = simt::bits_of((offset + sum) * base * back);
        }
        *reinterpret_cast<simt::Word16*>(out + half * 32) = four_tokens;
      }
    }
    simt::sync_warp();  // before the next heads' weights overwrite these
  }

  const ScorerMemory& memory_;
};

}  // namespace fasa::cuda
