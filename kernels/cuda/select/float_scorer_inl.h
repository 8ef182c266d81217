// Scores a page of floats by one warp (page_scorer_inl.h): fused multiply-adds, bound by the bytes
// read.
#pragma once

#include "kernels/cuda/select/scorer_memory_inl.h"

namespace fasa::cuda {

class FloatScorer {
 public:
  FASA_DEVICE explicit FloatScorer(const ScorerMemory& memory) : memory_(memory) {}

  FASA_DEVICE void score(const std::byte* page, SliceDType dtype) const {
    for (int first = 0; first < memory_.layout.queries;) {
      const int left = memory_.layout.queries - first;
      if (left >= 4) {
        score_float_heads<4>(page, dtype, first);
        first += 4;
      } else if (left >= 2) {
        score_float_heads<2>(page, dtype, first);
        first += 2;
      } else {
        score_float_heads<1>(page, dtype, first++);
      }
    }
  }

 private:
  // Lane l has tokens 2 l and 2 l + 1. Reads four dimensions of a query at a time.
  template <int kHeads>
  FASA_DEVICE void score_float_heads(const std::byte* page, SliceDType dtype, int first) const {
    struct alignas(8) Two {
      uint32_t tokens[2];
    };
    constexpr int kAhead = 8;
    float sums[kHeads][2] = {};
    const bool pairs = dtype == SliceDType::kBF16;
    const int steps = pairs ? (memory_.dims + 1) / 2 : memory_.dims;
    const auto* at = reinterpret_cast<const Two*>(page) + simt::lane();
    for (int begin = 0; begin < steps; begin += kAhead) {
      Two words[kAhead];
      FASA_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        words[i] = begin + i < steps ? at[(begin + i) * kPageTokens / 2] : Two{};
      }
      if (pairs) {
        FASA_UNROLL
        for (int i = 0; i < kAhead; i += 2) {
          const uint32_t codes[2][4] = {
              {words[i].tokens[0] << 16, words[i].tokens[0] & 0xffff0000u,
               words[i + 1].tokens[0] << 16, words[i + 1].tokens[0] & 0xffff0000u},
              {words[i].tokens[1] << 16, words[i].tokens[1] & 0xffff0000u,
               words[i + 1].tokens[1] << 16, words[i + 1].tokens[1] & 0xffff0000u}};
          add_four(first, 2 * (begin + i), codes, sums);
        }
      } else {
        FASA_UNROLL
        for (int i = 0; i < kAhead; i += 4) {
          uint32_t codes[2][4];
          FASA_UNROLL
          for (int j = 0; j < 4; ++j) {
            codes[0][j] = words[i + j].tokens[0];
            codes[1][j] = words[i + j].tokens[1];
          }
          add_four(first, begin + i, codes, sums);
        }
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      const float back = memory_.unscale(first + h);
      for (int token = 0; token < 2; ++token) {
        memory_.scores(first + h)[2 * simt::lane() + token] = sums[h][token] * back;
      }
    }
  }

  // Dimensions d to d + 3 of two tokens, or as many as are scored, for heads from `first` on.
  template <int kHeads>
  FASA_DEVICE void add_four(int first, int d, const uint32_t (&values)[2][4],
                            float (&sums)[kHeads][2]) const {
    if (d >= memory_.dims) return;
    FASA_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      const ScorerMemory::Four of_query = memory_.four(first + h, d);
      FASA_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (d + j >= memory_.dims) break;
        FASA_UNROLL
        for (int token = 0; token < 2; ++token) {
          sums[h][token] =
              simt::fused(of_query.values[j], simt::float_of(values[token][j]), sums[h][token]);
        }
      }
    }
  }

  const ScorerMemory& memory_;
};

}  // namespace fasa::cuda
