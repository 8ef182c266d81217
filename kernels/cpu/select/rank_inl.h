// The bodies of calibration's ranking, over a vector header (see row_math_inl.h).
#pragma once

#include "kernels/cpu/rows/row_math_inl.h"
#include "kernels/rank_body_types.h"

namespace fasa::cpu {
namespace {

constexpr int kVectors = kSumLanes / kLanes;  // registers per kSumLanes
constexpr float kWorst = -__builtin_inff();

typedef int BitsMem __attribute__((vector_size(sizeof(Bits)), aligned(4), may_alias));

inline Bits load_bits(const int32_t* p) { return *reinterpret_cast<const BitsMem*>(p); }
inline Bits splat_bits(int32_t value) { return value - Bits{}; }
inline float better(float a, float b) { return a > b ? a : b; }  // b if a is NaN
inline int32_t bits_of(float value) {
  int32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Reads keys once for kHeads heads, as many as registers allow. The loop's inputs are copied out of
// the task, because its stores might alias them.
template <int kHeads, bool kBegun>
void score_heads(const RankTask& task, int from) {
  const int64_t tokens = task.tokens;
  const float* first_keys = task.first_keys;
  const float* second_keys = task.second_keys;
  const float* base[kHeads];
  float* scores[kHeads];
  Vec first[kHeads], second[kHeads], best[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    base[h] = kBegun ? task.base + (from + h) * task.stride : nullptr;
    scores[h] = task.scores + (from + h) * task.stride;
    first[h] = splat(task.first[from + h]);
    second[h] = splat(task.second[from + h]);
    best[h] = splat(kWorst);
  }
  int64_t t = 0;
  for (; t + kLanes <= tokens; t += kLanes) {
    const Vec a = load(first_keys + t);
    const Vec b = load(second_keys + t);
    for (int h = 0; h < kHeads; ++h) {
      const Vec begun = kBegun ? load(base[h] + t) : Vec{};
      const Vec value = fma(second[h], b, fma(first[h], a, begun));
      store(scores[h] + t, value);
      best[h] = value > best[h] ? value : best[h];
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    float top = reduce_max(best[h]);
    for (int64_t i = t; i < tokens; ++i) {
      const Vec begun = kBegun ? splat(base[h][i]) : Vec{};
      const Vec value =
          fma(second[h], splat(second_keys[i]), fma(first[h], splat(first_keys[i]), begun));
      scores[h][i] = value[0];
      top = better(value[0], top);
    }
    task.best[from + h] = top;
  }
}

template <bool kBegun>
void score_all(const RankTask& task) {
  int h = 0;
  for (; h + 4 <= task.heads; h += 4) score_heads<4, kBegun>(task, h);
  for (; h + 2 <= task.heads; h += 2) score_heads<2, kBegun>(task, h);
  for (; h < task.heads; ++h) score_heads<1, kBegun>(task, h);
}

void score(const RankTask& task) {
  task.base == nullptr ? score_all<false>(task) : score_all<true>(task);
}

float best(const float* scores, int64_t tokens) {
  constexpr int kChains = 4;  // hides the latency of the maximum
  Vec most[kChains];
  for (Vec& one : most) one = splat(kWorst);
  int64_t t = 0;
  for (; t + kChains * kLanes <= tokens; t += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) {
      const Vec value = load(scores + t + c * kLanes);
      most[c] = value > most[c] ? value : most[c];
    }
  }
  float top = kWorst;
  for (const Vec& one : most) top = better(reduce_max(one), top);
  for (; t < tokens; ++t) top = better(scores[t], top);
  return top;
}

// Bits without sign are ordered like magnitudes; NaN sorts after infinity. The minimum over kHeads
// heads and, unless these are the first, over the earlier ones.
template <int kHeads>
void fold_heads(const float* scores, int64_t stride, const float* best, bool are_first,
                int64_t tokens, int32_t* deficits) {
  const float* rows[kHeads];
  Vec tops[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    rows[h] = scores + h * stride;
    tops[h] = splat(best[h]);
  }
  int64_t t = 0;
  for (; t + kLanes <= tokens; t += kLanes) {
    Bits least = are_first ? splat_bits(kNoScore) : load_bits(deficits + t);
    for (int h = 0; h < kHeads; ++h) {
      const Bits bits = (Bits)(tops[h] - load(rows[h] + t)) & 0x7fffffff;
      least = bits < least ? bits : least;
    }
    *reinterpret_cast<BitsMem*>(deficits + t) = least;
  }
  for (; t < tokens; ++t) {
    int32_t least = are_first ? kNoScore : deficits[t];
    for (int h = 0; h < kHeads; ++h) {
      const int32_t bits = bits_of(tops[h][0] - rows[h][t]) & 0x7fffffff;
      least = bits < least ? bits : least;
    }
    deficits[t] = least;
  }
}

void fold(const float* scores, int64_t stride, const float* best, int heads, int64_t tokens,
          int32_t* deficits) {
  int h = 0;
  const auto fold_next = [&](auto body, int count) {
    body(scores + h * stride, stride, best + h, h == 0, tokens, deficits);
    h += count;
  };
  while (h + 4 <= heads) fold_next(fold_heads<4>, 4);
  while (h + 2 <= heads) fold_next(fold_heads<2>, 2);
  while (h < heads) fold_next(fold_heads<1>, 1);
}

int64_t count_below(const int32_t* deficits, int64_t tokens, int32_t limit) {
  constexpr int kChains = 4;
  const Bits limits = splat_bits(limit);
  Bits counts[kChains] = {};
  int64_t t = 0;
  for (; t + kChains * kLanes <= tokens; t += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) {
      counts[c] = add_if_less(counts[c], load_bits(deficits + t + c * kLanes), limits);
    }
  }
  const Bits sum = (counts[0] + counts[1]) + (counts[2] + counts[3]);
  int64_t total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
  for (; t < tokens; ++t) total += deficits[t] < limit ? 1 : 0;
  return total;
}

// Adds sixteen partial sums in order, then the rest one by one.
struct Sums {
  Vec parts[kVectors] = {};

  double total() const {
    double sum = 0;
    for (const Vec& part : parts) {
      for (int lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(part[lane]);
    }
    return sum;
  }
};

template <bool kBetween>
double sum_and_find(const int32_t* deficits, const float* weights, int64_t tokens, int32_t low,
                    int32_t high, int32_t* between, int64_t* between_count) {
  const Bits lows = splat_bits(low);
  const Bits highs = splat_bits(high);
  Sums sums;
  int64_t found = 0;
  int64_t t = 0;
  for (; t + kSumLanes <= tokens; t += kSumLanes) {
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = t + v * kLanes;
      const Bits here = load_bits(deficits + at);
      sums.parts[v] = add_if_less(sums.parts[v], load(weights + at), here, lows);
      if constexpr (kBetween) {
        for (unsigned lanes = lanes_within(here, lows, highs); lanes != 0; lanes &= lanes - 1) {
          between[found++] = static_cast<int32_t>(at + __builtin_ctz(lanes));
        }
      }
    }
  }
  double total = sums.total();
  for (; t < tokens; ++t) {
    if (deficits[t] < low) total += static_cast<double>(weights[t]);
    if (deficits[t] >= low && deficits[t] < high) between[found++] = static_cast<int32_t>(t);
  }
  *between_count = found;
  return total;
}

double sum_below(const int32_t* deficits, const float* weights, int64_t tokens, int32_t low,
                 int32_t high, int32_t* between, int64_t* between_count) {
  const auto body = low < high ? sum_and_find<true> : sum_and_find<false>;
  return body(deficits, weights, tokens, low, high, between, between_count);
}

double weigh(const float* scores, int64_t tokens, float scale, float best, float* weights) {
  const auto weight_of = [&](Vec value) {
    const Vec weight = exp_of((value - splat(best)) * splat(scale));
    return weight >= 0.0f ? weight : Vec{};
  };
  Sums sums;
  int64_t t = 0;
  for (; t + kSumLanes <= tokens; t += kSumLanes) {
    for (int v = 0; v < kVectors; ++v) {
      const Vec weight = weight_of(load(scores + t + v * kLanes));
      store(weights + t + v * kLanes, weight);
      sums.parts[v] += weight;
    }
  }
  double total = sums.total();
  for (; t < tokens; ++t) {
    weights[t] = weight_of(splat(scores[t]))[0];
    total += static_cast<double>(weights[t]);
  }
  return total;
}

void soft_cap(const float* scores, int64_t count, float cap, float* capped) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(capped + i, soft_capped(load(scores + i), cap));
  for (; i < count; ++i) capped[i] = soft_capped(splat(scores[i]), cap)[0];
}

constexpr RankBodies kRankBodies = {score, best, fold, count_below, sum_below, weigh, soft_cap};

}  // namespace
}  // namespace fasa::cpu
