// Interface of the bodies that attend to whole pages of value codes: plain structs and a table of
// function pointers per instruction set. Included by files compiled for one instruction set.
#pragma once

#include <stdint.h>

#include "kernels/code_width.h"

namespace fasa::cpu {

inline constexpr int kChunkWords = 4;   // words of a token's codes processed together
inline constexpr int kChunkLanes = 16;  // dimensions of each plane in a chunk

// Dimensions that a page's sums are kept for, in code order: those of whole chunks.
constexpr int sum_dims(int words, int bits) {
  return (words + kChunkWords - 1) / kChunkWords * kChunkWords * (32 / bits);
}
// The first sum of a word in code order, [chunk][plane][word][byte]. 2, 4 and 8 bits have 4, 2, 1
// planes of dimensions: `unit`, those of a word, is 16, 8, 4.
constexpr int sum_place(int word, int unit) {
  return word / kChunkWords * kChunkWords * unit + word % kChunkWords * 4;
}

// Sealed pages of a block for the query heads of one KV head.
struct LowBitPagesTask {
  int group = 0;
  int words = 0;  // of a token's codes
  int pages = 0;
  // [pages + 1]: each [64][words], then the parameters. The last is only prefetched, if not null.
  const unsigned char* const* codes = nullptr;
  int64_t code_bytes = 0;
  const float* bases = nullptr;  // [pages]
  // For query head h (low_bit_pages.h): scores + h * score_stride, [pages][64]; factors of the
  // pages' weights in the block, factors + h * kLowBitBlockPages.
  const int16_t* scores = nullptr;
  int64_t score_stride = 0;
  const float* factors = nullptr;
  // The pages' parts are added to head h's weights, totals[h], and to its weighted values in code
  // order, sums + h * sum_stride.
  float* totals = nullptr;
  float* sums = nullptr;
  int64_t sum_stride = 0;
  float* scales = nullptr;  // scratch [2 * sum_dims()], 64-byte aligned
};

struct LowBitBodies {
  void (*attend_pages[kCodeWidthCount])(const LowBitPagesTask&);
  // Returns the largest maximum of a block's `count` pages for one query head; writes the factors
  // of the pages' rounded weights relative to it, [kLowBitBlockPages].
  float (*find_factors)(const float* maxima, int count, float* factors);
};

extern const LowBitBodies kLowBitPortable;
extern const LowBitBodies kLowBitAvx2;
extern const LowBitBodies kLowBitAvx512;
extern const LowBitBodies kLowBitVnni;

}  // namespace fasa::cpu
