// A low-bit set of all tokens outside the set, attended to by whole pages: selection writes the
// scores of every page while it scores them, and takes out those of the set; attention reads them
// beside the pages' value codes.
//
// A page's scores of one query head are the maximum of its low-bit tokens in f32, and 16-bit codes
// of the distances to it. With the scale s of attention, token t has the scaled score
//     maximum + code[t] / kScoreUnits,   code[t] = max(round((raw[t] - largest raw) s kScoreUnits),
//                                                     kLowestScoreCode)
// which is exact to 1/512, or 0.2 % of a weight. Scores that lie farther below have weights of no
// account.
#pragma once

#include <cstdint>

namespace fasa {

inline constexpr float kScoreUnits = 256;
inline constexpr int16_t kLowestScoreCode = -32767;
inline constexpr int16_t kNoScoreCode = -32768;  // in the set, invisible, or without weight

// Pages from the first visible one on are attended to in blocks of this many, each of which gives
// one partial softmax: 1024 tokens.
inline constexpr int kLowBitBlockPages = 16;

constexpr int low_bit_blocks(int pages) {
  return (pages + kLowBitBlockPages - 1) / kLowBitBlockPages;
}

// Arrays in device memory; capacity 0: no such set.
struct LowBitPages {
  int32_t capacity = 0;       // >= every number of pages
  float scale = 1;            // of scores
  int32_t* counts = nullptr;  // [count, kv_heads]: pages with visible tokens; 0: no low-bit set
  // [count, query_heads, capacity], scaled; -inf: no token of the page has weight.
  float* maxima = nullptr;
  int16_t* scores = nullptr;  // [count, query_heads, capacity, kPageTokens]

  // Index of a query head's first page, in `maxima` and, in pages, in `scores`.
  constexpr int64_t at(int64_t query) const { return query * capacity; }
};

}  // namespace fasa
