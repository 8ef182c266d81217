// One query of one query head over a text: its scores, and the best tokens.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/calibrate/calibrate_samples.h"
#include "runtime/calibrate/calibrate_top_k.h"

namespace fasa {

// One byte a token: 1 for members.
using TokenSet = std::vector<uint8_t>;

// The k best of a row; ties go to the lower index; NaN ranks last.
inline TokenSet best_tokens(std::span<const float> scores, int64_t k) {
  const cpu::RankBodies& bodies = cpu::rank_bodies(cpu::active_target());
  const int64_t tokens = std::ssize(scores);
  const float best = bodies.best(scores.data(), tokens);
  std::vector<int32_t> deficits(scores.size());
  bodies.fold(scores.data(), tokens, &best, 1, tokens, deficits.data());
  TopKSelector selector;
  selector.select(deficits, k);
  TokenSet set(scores.size());
  selector.mark(set);
  return set;
}

// The raw scores of the tokens that query `query` of head `head` attends to.
inline std::vector<float> scores_of(const HeadSamples& samples, size_t query, int head) {
  const int64_t first = samples.visible_first(query);
  std::vector<float> row(static_cast<size_t>(samples.visible_end(query) - first));
  if (!samples.slopes.empty()) {
    const float slope = samples.slopes[static_cast<size_t>(head)];
    for (size_t t = 0; t < row.size(); ++t) {
      row[t] = slope * (static_cast<float>(t + 1) - static_cast<float>(row.size()));
    }
  }
  const float* q = samples.query(query, head);
  for (int dim = 0; dim < samples.key_dim; ++dim) {
    const float* keys = samples.key_plane(dim) + first;
    for (size_t t = 0; t < row.size(); ++t) row[t] += q[dim] * keys[t];
  }
  return row;
}

// Softmax of the scaled scores.
inline std::vector<double> weights_of(const HeadSamples& samples,
                                      const std::vector<float>& scores) {
  std::vector<double> weights(scores.begin(), scores.end());
  const double top = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& value : weights) sum += value = std::exp(samples.scale * (value - top));
  for (double& value : weights) value /= sum;
  return weights;
}

// The weight of a set's tokens outside the first 4 and the newest 16.
inline double distant_weight(const TokenSet& set, const std::vector<double>& weights) {
  double sum = 0;
  for (size_t i = 4; i + 16 < set.size(); ++i) sum += set[i] != 0 ? weights[i] : 0;
  return sum;
}

}  // namespace fasa
