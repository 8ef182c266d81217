// The number of tokens that each layer attends to: fac_tokens, or spread by depth with equal total.
#pragma once

#include <vector>

#include "kernels/params.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"

namespace fasa {

// The budget in the form that kernels take.
TokenBudget budget_of(const TokenCount& count);

// One budget per layer. With a pyramid (PyramidKV, arXiv 2406.02069) the total of the layers that
// are not dense is unchanged: the last gets a twentieth of fac_tokens, but at least sinks + recent
// + 1; the first gets correspondingly more; layers between are on a straight line.
std::vector<TokenBudget> layer_budgets(const Config& config, const Geometry& geometry);

}  // namespace fasa
