#include "runtime/serve/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace fasa::serve {
namespace {

double log_sum_exp(std::span<const float> logits, float greatest) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - greatest);
  return greatest + std::log(sum);
}

}  // namespace

TokenChoice with_logprobs(std::span<const float> logits, int32_t id, int top) {
  const float greatest = *std::max_element(logits.begin(), logits.end());
  const double all = log_sum_exp(logits, greatest);
  const auto logprob = [&](int32_t of) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(of)]) - all);
  };
  TokenChoice choice{.id = id, .logprob = logprob(id)};
  if (top <= 0) return choice;
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const size_t count = std::min(static_cast<size_t>(top), ids.size());
  const auto better = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    better);
  for (size_t i = 0; i < count; ++i) choice.top.emplace_back(ids[i], logprob(ids[i]));
  return choice;
}

}  // namespace fasa::serve
