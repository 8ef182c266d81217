// How many tokens each layer attends to: what fac_tokens says, or spread by depth at equal total.
#pragma once

#include <vector>

#include "kernels/params.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"

namespace fasa {

// As kernels take it.
TokenBudget budget_of(const TokenCount& count);

// One per layer. Of a pyramid (PyramidKV, arXiv 2406.02069) the layers that are not dense share
// what they would have had: the last of them gets a twentieth of fac_tokens, but never less than
// sinks + recent + 1, the first as much more, in between on a straight line.
std::vector<TokenBudget> layer_budgets(const Config& config, const Geometry& geometry);

}  // namespace fasa
