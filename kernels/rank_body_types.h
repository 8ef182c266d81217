// Inner loops of calibration, run for every query, candidate FC and token: plain structs and a
// table of function pointers per instruction set. Included by files compiled for one instruction
// set, so it includes no other header of the project and none with inline functions.
//
// A *deficit* is the difference between a token's score and its head's best, as the bits of that
// float: smaller is better, and 0 is the best token's. kNoScore marks a token without a usable
// score in any head (NaN, -infinity).
#pragma once

#include <stdint.h>

namespace fasa::cpu {

inline constexpr int32_t kNoScore = 0x7f800000;  // the bits of infinity
inline constexpr int kSumLanes =
    64;  // a fixed number of partial sums: the same bits on every target

// One query of a group and one FC. Rows of head h begin at h * stride.
struct RankTask {
  int heads = 0;
  int64_t tokens = 0;
  int64_t stride = 0;
  const float* base = nullptr;         // [heads][tokens], null = zeros
  const float* first_keys = nullptr;   // [tokens], one dimension of the FC
  const float* second_keys = nullptr;  // [tokens], the other
  const float* first = nullptr;        // [heads], the query's
  const float* second = nullptr;       // [heads]
  float* scores = nullptr;             // [heads][tokens], may be base
  float* best = nullptr;               // [heads]
};

struct RankBodies {
  // scores = base + the FC's part; best = each head's maximum without NaN (-infinity if nothing is
  // left).
  void (*score)(const RankTask&);
  float (*best)(const float* scores, int64_t tokens);
  // deficits[t] = the minimum over the heads of best[h] - scores[h][t].
  void (*fold)(const float* scores, int64_t stride, const float* best, int heads, int64_t tokens,
               int32_t* deficits);
  int64_t (*count_below)(const int32_t* deficits, int64_t tokens, int32_t limit);
  // Returns the sum of the weights of tokens with deficits < low. Tokens with deficits in [low,
  // high) are written to `between`, in order, and counted.
  double (*sum_below)(const int32_t* deficits, const float* weights, int64_t tokens, int32_t low,
                      int32_t high, int32_t* between, int64_t* between_count);
  // weights = exp(scale * (scores - best)), 0 for NaN; returns their sum.
  double (*weigh)(const float* scores, int64_t tokens, float scale, float best, float* weights);
  // capped = cap * tanh(scores / cap); `capped` may be `scores`.
  void (*soft_cap)(const float* scores, int64_t count, float cap, float* capped);
};

extern const RankBodies kRankBodiesPortable;
extern const RankBodies kRankBodiesAvx2;
extern const RankBodies kRankBodiesAvx512;

}  // namespace fasa::cpu
