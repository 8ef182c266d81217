// The pairs of tokens and experts that a block of a projection processes.
#pragma once

#include "kernels/cuda/model/row_group.h"
#include "kernels/cuda/simt.h"
#include "kernels/expert_params.h"

namespace fasa::cuda {

// The group of rows that begins at `pair`, or an empty one if none does. A group has consecutive
// pairs of one expert and crosses no multiple of kRows. Its `weights` is the expert.
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

// Whether most experts have only one or two rows.
constexpr bool are_scattered(const ExpertPairs& pairs) { return pairs.pairs() <= pairs.count; }

// Row of x of a pair.
FASA_DEVICE int64_t row_of(const ExpertPairs& pairs, PairInput input, int64_t pair) {
  return input == PairInput::kToken ? pairs.rows[pair] : pair;
}

}  // namespace fasa::cuda
