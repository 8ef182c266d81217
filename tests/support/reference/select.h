// The steps of the reference selection, for tests that compare intermediate results.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params.h"

namespace fasa::reference {

// Raw scores of one sequence and KV head, [heads][visible]: NaN as -inf, +inf as the largest
// finite number.
struct GroupScores {
  std::vector<float> raw;
  int heads = 0;
  uint64_t nans = 0;
};
GroupScores group_scores(const SelectParams& params, int sequence, int kv_head);

// Maximum over the heads of (score - that head's maximum), [visible].
std::vector<float> relative_scores(const GroupScores& scores, int visible);

}  // namespace fasa::reference
