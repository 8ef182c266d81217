// Interface of the bodies that attend to whole pages of value codes: plain structs and a table of
// function pointers per instruction set. Included by files compiled for one instruction set.
#pragma once

#include <stdint.h>

namespace fasa::cpu {

inline constexpr int kChunkWords = 4;   // words of a token's codes processed together
inline constexpr int kChunkLanes = 16;  // dimensions of each plane in a chunk

// Dimensions that a page's sums are kept for, in code order: those of whole chunks.
constexpr int sum_dims(int words, int bits) {
  return (words + kChunkWords - 1) / kChunkWords * kChunkWords * (32 / bits);
}
// The dimension at index `i` in code order: [chunk][plane][word][byte]; 4 and 2 bits have 2 and 4
// planes of dimensions, 8 bits one. May lie beyond the last one.
constexpr int sum_dim(int i, int bits) {
  const int planes = 8 / bits;
  const int chunk = i / (kChunkLanes * planes);
  const int plane = i / kChunkLanes % planes;
  const int lane = i % kChunkLanes;
  return (chunk * kChunkWords + lane / 4) * (32 / bits) + plane * 4 + lane % 4;
}

// One sealed page for the query heads of one KV head.
struct LowBitPageTask {
  int group = 0;
  int words = 0;                              // of a token's codes
  const unsigned char* codes = nullptr;       // [64][words], then the parameters
  const unsigned char* parameters = nullptr;  // slice_format.h
  float base = 1;
  const unsigned char* next = nullptr;  // codes of the next page, prefetched meanwhile; null: none
  // For query head h (low_bit_pages.h): scores + h * score_stride, [64]; maxima[h * maxima_stride];
  // tops[h], the maximum of the block.
  const int16_t* scores = nullptr;
  int64_t score_stride = 0;
  const float* maxima = nullptr;
  int64_t maxima_stride = 0;
  const float* tops = nullptr;
  // The page's part is added to head h's weights, totals[h], and to its weighted values in code
  // order, sums + h * sum_stride.
  float* totals = nullptr;
  float* sums = nullptr;
  int64_t sum_stride = 0;
  float* scales = nullptr;  // scratch [2 * sum_dims()], 64-byte aligned
};

struct LowBitBodies {
  void (*attend_page[3])(const LowBitPageTask&);  // for 2, 4 and 8 bits
};

extern const LowBitBodies kLowBitPortable;
extern const LowBitBodies kLowBitAvx2;
extern const LowBitBodies kLowBitAvx512;
extern const LowBitBodies kLowBitVnni;

}  // namespace fasa::cpu
