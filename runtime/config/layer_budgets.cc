#include "runtime/config/layer_budgets.h"

#include <algorithm>
#include <cmath>

namespace fasa {
namespace {

constexpr int kPyramidShrink = 20;  // the paper's beta

// Step `i` of `steps` on the line from 2 mean - last to last.
double on_line(double mean, double last, int i, int steps) {
  if (steps == 1) return mean;
  return 2 * mean - last - 2 * (mean - last) * i / (steps - 1);
}

// Integers whose sum is exactly steps x mean: differences of rounded running sums.
std::vector<TokenBudget> count_pyramid(int64_t mean, int64_t least, int steps) {
  const double last =
      std::max<double>(static_cast<double>(least), static_cast<double>(mean) / kPyramidShrink);
  std::vector<TokenBudget> budgets;
  double sum = 0;
  int64_t given = 0;
  for (int i = 0; i < steps; ++i) {
    sum += on_line(static_cast<double>(mean), last, i, steps);
    const int64_t reached = std::llround(sum);
    const int64_t tokens = std::max(least, reached - given);
    given += tokens;
    budgets.push_back(
        {.tokens = static_cast<int32_t>(std::min<int64_t>(tokens, INT32_MAX)), .share = 0});
  }
  return budgets;
}

std::vector<TokenBudget> share_pyramid(double mean, int steps) {
  // So that the first share is at most 1.
  const double last = std::max(mean / kPyramidShrink, 2 * mean - 1);
  std::vector<TokenBudget> budgets;
  for (int i = 0; i < steps; ++i) {
    budgets.push_back({.tokens = 0, .share = static_cast<float>(on_line(mean, last, i, steps))});
  }
  return budgets;
}

}  // namespace

TokenBudget budget_of(const TokenCount& count) {
  constexpr int64_t kMax = INT32_MAX;
  return {.tokens = static_cast<int32_t>(std::min(count.tokens, kMax)),
          .share = static_cast<float>(count.share),
          .min_tokens = static_cast<int32_t>(std::min(count.min_tokens, kMax)),
          .max_tokens = static_cast<int32_t>(std::min(count.max_tokens, kMax))};
}

std::vector<TokenBudget> layer_budgets(const Config& config, const Geometry& geometry) {
  const std::vector<TokenCount> counts = config.fac_tokens(geometry.chunks());
  std::vector<TokenBudget> budgets;
  std::vector<size_t> pruned;
  for (int layer = 0; layer < geometry.layers; ++layer) {
    if (!config.is_dense(layer)) pruned.push_back(budgets.size());
    budgets.push_back(budget_of(counts[counts.size() == 1 ? 0 : static_cast<size_t>(layer)]));
  }
  if (config.selection.layer_budget != LayerBudget::kPyramid || pruned.empty()) return budgets;
  const TokenCount& mean = counts.front();
  const auto steps = static_cast<int>(pruned.size());
  const int64_t least = int64_t{config.selection.sinks} + config.selection.recent + 1;
  const std::vector<TokenBudget> pyramid =
      mean.tokens > 0 ? count_pyramid(mean.tokens, least, steps) : share_pyramid(mean.share, steps);
  for (size_t i = 0; i < pruned.size(); ++i) budgets[pruned[i]] = pyramid[i];
  return budgets;
}

}  // namespace fasa
