#include "runtime/llm/generation/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fasa {

TokenLogprobs logprobs_of(std::span<const float> logits, int32_t id, int top) {
  const auto logit = [&](int32_t index) {
    const float value = logits[static_cast<size_t>(index)];
    return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
  };
  std::vector<int32_t> ids(logits.size());
  float best = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(i);
    best = std::max(best, logit(ids[i]));
  }
  double sum = 0;
  for (const int32_t index : ids) sum += std::exp(static_cast<double>(logit(index)) - best);
  // Two terms: with a large best logit, the sum's logarithm would be rounded away.
  const double rest = std::log(sum);
  const auto logprob = [&](int32_t index) {
    return static_cast<double>(logit(index)) - best - rest;
  };

  const auto count = static_cast<ptrdiff_t>(std::min(static_cast<size_t>(top), ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  TokenLogprobs result{id, logprob(id), {}};
  for (ptrdiff_t i = 0; i < count; ++i) {
    const int32_t best_id = ids[static_cast<size_t>(i)];
    result.top.emplace_back(best_id, logprob(best_id));
  }
  return result;
}

}  // namespace fasa
