// The inner loops of TIP per instruction set: scores of one slice page, and the vector parts of the
// selection. Plain structs and function pointers only: every target's file includes this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/code_width.h"
#include "kernels/low_bit_pages.h"
#include "kernels/target.h"

namespace fasa::cpu {

inline constexpr int kScoreHeads = 4;  // maximum query heads per call
inline constexpr float kLargestFinite = 3.402823466e38f;

// Up to kScoreHeads query heads of one KV head, gathered into slice order.
struct PageQuery {
  const float* q;  // [heads][stride], zero beyond the slice's dimensions
  float* weights;  // scratch [kScoreHeads][stride], zeroed once, 64-byte aligned
  int8_t* codes;   // scratch [2][kScoreHeads][stride], 64-byte aligned
  int heads;
  int stride;          // a multiple of 64
  int dims;            // SliceFormat::padded_dims() of what is scored
  int64_t code_bytes;  // codes of the whole page; its parameters follow
};

// Writes the scores of the page's 64 tokens to scores[heads][64], 64-byte aligned. `next`: the page
// to prefetch meanwhile, or null. Returns false if a value was not finite or close to overflow; of
// a coded page nothing is written then, and kScorePortable must score it.
using ScorePage = bool (*)(const PageQuery& query, const std::byte* page, float base,
                           const std::byte* next, float* scores);

// Tokens that may still be selected, in order of position.
struct Candidates {
  int32_t* positions;
  float* raw;  // [heads][capacity]
  int32_t capacity;
  int32_t count;
  int heads;
};
// Appending writes whole vectors: the arrays are this much longer than `capacity`.
inline constexpr int kCandidateSlack = 16;

struct ScoreBodies {
  ScorePage score[2 + kCodeWidthCount];  // f32, bf16, codes by width
  // Bit t: some head h has scores[h][t] >= bounds[h]. scores [heads][64], no NaN.
  uint64_t (*filter)(const float* scores, int heads, const float* bounds);
  // Appends the tokens of `mask`; `position`: that of bit 0. Needs count + 64 <= capacity.
  void (*append)(const float* scores, uint64_t mask, int32_t position, Candidates* candidates);
  // keys[t] = max over heads of raw[h * stride + t] - maxima[h], as an integer of the same order.
  void (*relative_keys)(const float* raw, int64_t stride, int heads, int32_t count,
                        const float* maxima, int32_t* keys);
  // maxima[h] = max(maxima[h], raw of that head).
  void (*raise_maxima)(const float* raw, int64_t stride, int heads, int32_t count, float* maxima);
  int32_t (*count_at_least)(const int32_t* keys, int32_t count, int32_t bound);
  // Finds the keys in [begin, end) that are at least `bound`, and their indices, in order; returns
  // their number. Writes up to kCandidateSlack entries beyond them.
  int32_t (*find_at_least)(const int32_t* keys, int32_t begin, int32_t end, int32_t bound,
                           int32_t* found, int32_t* places);
  // scores[i] = cap * tanh(scores[i] / cap); a multiple of 64 scores, 64-byte aligned.
  void (*soft_cap)(float* scores, int32_t count, float cap);
  // A page's scores of one query head, [64] and 64-byte aligned, as low_bit_pages.h stores them:
  // writes the codes, returns the scaled maximum. -inf becomes kNoScoreCode.
  float (*code_scores)(const float* scores, float scale, int16_t* codes);
  // Takes the tokens of `taken` (bit t) out of such codes, and makes them relative to the largest
  // of those left, whose score is returned; `maximum`: the page's before. Lowest codes stay so.
  float (*take_out)(uint64_t taken, float maximum, int16_t* codes);
};

// The bodies of a supported target.
const ScoreBodies& score_bodies(Target target);

// One instance per file.
extern const ScoreBodies kScorePortable;
#if defined(__x86_64__)
extern const ScoreBodies kScoreAvx2;
extern const ScoreBodies kScoreAvx512;
extern const ScoreBodies kScoreVnni;
#endif

}  // namespace fasa::cpu
