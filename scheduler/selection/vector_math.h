// Loops over floats that selections share. Sums have a fixed order, so that a baseline's selection
// depends on neither threads nor batch.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace fasa {

inline constexpr float kNoScore = -std::numeric_limits<float>::infinity();

// Eight partial sums, so that the compiler can use registers of up to that width.
inline float dot(const float* a, const float* b, int count) {
  constexpr int kLanes = 8;
  float sums[kLanes] = {};
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  return (((sums[0] + sums[4]) + (sums[2] + sums[6])) +
          ((sums[1] + sums[5]) + (sums[3] + sums[7]))) +
         rest;
}

// Maps NaN to -inf, as the kernels do, and +inf to the largest float, so that differences are
// numbers.
inline float finite_score(float score) {
  if (std::isnan(score)) return kNoScore;
  return std::min(score, std::numeric_limits<float>::max());
}

inline float greatest(std::span<const float> scores) {
  float top = std::numeric_limits<float>::lowest();
  for (const float score : scores) top = std::max(top, score);
  return top;
}

// scores <- softmax(scores * scale); all 0 if every score is -inf.
inline void softmax(std::span<float> scores, float scale) {
  const float top = greatest(scores) * scale;
  float sum = 0;
  for (float& score : scores) {
    score = std::exp(score * scale - top);
    sum += score;
  }
  if (sum == 0) return;
  for (float& score : scores) score /= sum;
}

}  // namespace fasa
