#include "runtime/config/layer_budgets.h"

#include <algorithm>

namespace fasa {

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
  for (size_t layer = 0; layer < static_cast<size_t>(geometry.layers); ++layer) {
    budgets.push_back(budget_of(counts[counts.size() == 1 ? 0 : layer]));
  }
  return budgets;
}

}  // namespace fasa
