// The number of tokens that each layer attends to.
#pragma once

#include <vector>

#include "kernels/params.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"

namespace fasa {

// The budget in the form that kernels take.
TokenBudget budget_of(const TokenCount& count);

// One budget per layer.
std::vector<TokenBudget> layer_budgets(const Config& config, const Geometry& geometry);

}  // namespace fasa
