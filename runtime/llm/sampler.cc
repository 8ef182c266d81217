#include "runtime/llm/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"

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

void Sampling::validate() const {
  if (!(temperature >= 0) || std::isinf(temperature)) {
    throw UsageError(fmt::format("temperature = {}; allowed: 0 (greedy) or more", temperature));
  }
  if (top_k < 0) throw UsageError(fmt::format("top_k = {}; allowed: 0 (all) or more", top_k));
  if (!(top_p > 0 && top_p <= 1)) {
    throw UsageError(fmt::format("top_p = {}; allowed: above 0, up to 1", top_p));
  }
}

Sampler::Sampler(const Sampling& sampling) : sampling_(sampling), random_(sampling.seed) {
  sampling_.validate();
}

int32_t Sampler::next(std::span<const float> logits) {
  if (sampling_.temperature == 0) return greedy(logits);
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) candidates_.emplace_back(logits[i], static_cast<int32_t>(i));
  }
  const auto keep = static_cast<size_t>(sampling_.top_k);
  if (keep > 0 && keep < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + sampling_.top_k - 1,
                     candidates_.end(), better);
    candidates_.resize(keep);
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
  // An infinite best logit leaves no distribution to draw from.
  if (candidates_.empty() || std::isinf(candidates_[0].first)) return greedy(logits);
  weights_.resize(candidates_.size());
  const double top = candidates_[0].first;
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] = std::exp((candidates_[i].first - top) / sampling_.temperature);
    sum += weights_[i];
  }
  // The shortest prefix with at least top_p of the probability.
  double kept = 0;
  size_t count = 0;
  while (count < weights_.size() && (count == 0 || kept < sampling_.top_p * sum)) {
    kept += weights_[count++];
  }
  // 53 random bits: std::uniform_real_distribution may differ between libraries.
  double point = static_cast<double>(random_() >> 11) * 0x1p-53 * kept;
  for (size_t i = 0; i < count; ++i) {
    point -= weights_[i];
    if (point < 0) return candidates_[i].second;
  }
  return candidates_[count - 1].second;
}

}  // namespace fasa
