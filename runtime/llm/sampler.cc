#include "runtime/llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fasa {
namespace {

bool better(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

int32_t greedy(std::span<const float> logits) {
  int32_t best = 0;
  float best_logit = -std::numeric_limits<float>::infinity();
  bool found = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || (found && !(logits[i] > best_logit))) continue;
    best = static_cast<int32_t>(i);
    best_logit = logits[i];
    found = true;
  }
  return best;
}

}  // namespace

Sampler::Sampler(const Sampling& sampling)
    : sampling_(sampling), penalties_(sampling_), random_(sampling.seed) {
  sampling_.validate();
}

int32_t Sampler::next(std::span<const float> logits) {
  if (penalties_.any()) {
    changed_.assign(logits.begin(), logits.end());
    penalties_.apply(changed_);
    logits = changed_;
  }
  const int32_t token = sampling_.temperature == 0 ? greedy(logits) : draw(logits);
  if (penalties_.any()) penalties_.see_generated(token);
  return token;
}

void Sampler::keep_best(size_t count) {
  if (count > 0 && count < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count) - 1,
                     candidates_.end(), better);
    candidates_.resize(count);
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
}

// How many of the weights (descending) top_p and min_p keep. `sum`: of all weights.
size_t Sampler::cut_by_mass(double sum) const {
  double kept = 0;
  size_t count = 0;
  while (count < weights_.size() && (count == 0 || kept < sampling_.top_p * sum)) {
    kept += weights_[count++];
  }
  // Weights are relative to the best one, which is 1.
  while (count > 1 && weights_[count - 1] < sampling_.min_p) --count;
  return count;
}

int32_t Sampler::draw(std::span<const float> logits) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) candidates_.emplace_back(logits[i], static_cast<int32_t>(i));
  }
  keep_best(static_cast<size_t>(sampling_.top_k));
  // An infinite best logit leaves no distribution to draw from.
  if (candidates_.empty() || std::isinf(candidates_[0].first)) return greedy(logits);
  weights_.resize(candidates_.size());
  const double top = candidates_[0].first;
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] = std::exp((candidates_[i].first - top) / sampling_.temperature);
    sum += weights_[i];
  }
  const size_t count = cut_by_mass(sum);
  double kept = 0;
  for (size_t i = 0; i < count; ++i) kept += weights_[i];
  // 53 random bits; std::uniform_real_distribution may differ between libraries.
  double point = static_cast<double>(random_() >> 11) * 0x1p-53 * kept;
  for (size_t i = 0; i < count; ++i) {
    point -= weights_[i];
    if (point < 0) return candidates_[i].second;
  }
  return candidates_[count - 1].second;
}

}  // namespace fasa
