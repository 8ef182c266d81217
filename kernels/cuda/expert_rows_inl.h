// Which pairs of tokens and experts a block of a projection works for.
#pragma once

#include "kernels/cuda/row_group.h"
#include "kernels/cuda/simt.h"
#include "kernels/expert_params.h"

namespace fasa::cuda {

// The group of rows that the pair is the first of, if it is: pairs of one expert between multiples
// of kRows. Its weights: the expert.
template <int kRows>
FASA_DEVICE RowGroup group_led_by(const ExpertPairs& pairs, int64_t pair) {
  const int32_t expert = pairs.experts[pair];
  if (pair % kRows != 0 && pairs.experts[pair - 1] == expert) return {};
  RowGroup group{pair, pair + 1, expert};
  for (; group.end < pairs.pairs() && group.end % kRows != 0; ++group.end) {
    if (pairs.experts[group.end] != expert) break;
  }
  return group;
}

// Whether an expert has a row or two, as a rule.
constexpr bool are_scattered(const ExpertPairs& pairs) { return pairs.pairs() <= pairs.count; }

// Where the row of x is.
FASA_DEVICE int64_t row_of(const ExpertPairs& pairs, PairInput input, int64_t pair) {
  return input == PairInput::kToken ? pairs.rows[pair] : pair;
}

}  // namespace fasa::cuda
