#include "runtime/llm/config/config_parts.h"

#include <bit>
#include <cmath>

namespace fasa {
namespace {

// Slopes of every `step`-th of `heads` heads (a power of two) from the `first`-th on, counted from
// 1.
std::vector<float> series(int heads, int first, int step, double most) {
  std::vector<float> slopes;
  for (int i = first; i <= heads; i += step) {
    slopes.push_back(static_cast<float>(std::exp2(-most * i / heads)));
  }
  return slopes;
}

}  // namespace

std::vector<float> alibi_slopes(int heads, AlibiOrder order, double most) {
  const int below = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  const int above = static_cast<int>(std::bit_ceil(static_cast<unsigned>(heads)));
  if (below == above) return series(heads, 1, 1, most);
  const std::vector<float> odd = series(above, 1, 2, most);
  std::vector<float> slopes =
      order == AlibiOrder::kExtrasLast ? series(below, 1, 1, most) : series(above, 2, 2, most);
  slopes.insert(slopes.end(), odd.begin(), odd.end());
  slopes.resize(static_cast<size_t>(heads));
  return slopes;
}

}  // namespace fasa
