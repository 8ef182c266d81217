// ALiBi's slopes and the cap as scores take them: before the scale.
#pragma once

#include <vector>

#include "runtime/base/geometry.h"

namespace fasa {

// [query_heads], what is added to q·k for each position; empty = none.
inline std::vector<float> raw_slopes(const Geometry& geometry) {
  std::vector<float> slopes = geometry.alibi_slopes;
  for (float& slope : slopes) slope /= geometry.scale;
  return slopes;
}

// Cap of q·k before the scale; 0 = none.
inline float raw_score_cap(const Geometry& geometry) { return geometry.score_cap / geometry.scale; }

}  // namespace fasa
