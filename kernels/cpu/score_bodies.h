// The inner loops of TIP per instruction set: scores of one slice page, and the little vector work
// of the selection. Plain structs and function pointers only: every target's file includes this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/target.h"

namespace fasa::cpu {

inline constexpr int kScoreHeads = 4;  // query heads that one call scores at most

// Up to kScoreHeads query heads of one KV head, gathered into slice order.
struct PageQuery {
  const float* q;  // [heads][stride], zero beyond the slice's dimensions
  float* weights;  // scratch [kScoreHeads][stride], zeroed once, 64-byte aligned
  int8_t* codes;   // scratch [2][kScoreHeads][stride], 64-byte aligned
  int heads;
  int stride;          // a multiple of 64
  int dims;            // SliceFormat::padded_dims() of what is scored
  int64_t code_bytes;  // of the whole page: where its parameters begin
};

// Scores of the 64 tokens of `page` to scores[heads][64], 64-byte aligned. `next`: what will be
// scored after it, fetched into the cache meanwhile, or null. False: something was not finite or
// close to overflow, and of a coded page nothing was written: kScorePortable then has the answer.
using ScorePage = bool (*)(const PageQuery& query, const std::byte* page, float base,
                           const std::byte* next, float* scores);

// Tokens that may still be selected, in position order.
struct Candidates {
  int32_t* positions;
  float* raw;  // [heads][capacity]
  int32_t capacity;
  int32_t count;
  int heads;
};
// Appending writes whole vectors: this much room lies behind `capacity`.
inline constexpr int kCandidateSlack = 16;

struct ScoreBodies {
  ScorePage score[5];  // by SliceDType
  // Bit t: some head h has scores[h][t] >= bounds[h]. scores [heads][64], no NaN.
  uint64_t (*filter)(const float* scores, int heads, const float* bounds);
  // The tokens of `mask`; position of bit 0 given. Needs count + 64 <= capacity.
  void (*append)(const float* scores, uint64_t mask, int32_t position, Candidates* candidates);
  // keys[t] = max over heads of raw[h * stride + t] - maxima[h], as an integer of the same order.
  void (*relative_keys)(const float* raw, int64_t stride, int heads, int32_t count,
                        const float* maxima, int32_t* keys);
  // maxima[h] = max(maxima[h], raw of that head).
  void (*raise_maxima)(const float* raw, int64_t stride, int heads, int32_t count, float* maxima);
  int32_t (*count_at_least)(const int32_t* keys, int32_t count, int32_t bound);
  // Those of keys [begin, end) that are at least `bound`, and where they lie, in order; returns how
  // many. Writes up to kCandidateSlack beyond them.
  int32_t (*find_at_least)(const int32_t* keys, int32_t begin, int32_t end, int32_t bound,
                           int32_t* found, int32_t* places);
  // scores[i] = cap * tanh(scores[i] / cap), of a multiple of 64, 64-byte aligned.
  void (*soft_cap)(float* scores, int32_t count, float cap);
};

// The bodies of a supported target.
const ScoreBodies& score_bodies(Target target);

// One body per file; score_bodies() chooses.
extern const ScoreBodies kScorePortable;
#if defined(__x86_64__)
extern const ScoreBodies kScoreAvx2;
extern const ScoreBodies kScoreAvx512;
extern const ScoreBodies kScoreVnni;
#endif

}  // namespace fasa::cpu
