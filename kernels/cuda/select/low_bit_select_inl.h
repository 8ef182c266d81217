// A select's low-bit set, written by the block that has ranked a head: the tokens of the best need
// + low_bit that are not among the best `need`, and their scores.
#pragma once

#include "kernels/cuda/select/select_head_inl.h"

namespace fasa::cuda {

// Index of the first of `count` ascending positions that is not below `position`.
FASA_DEVICE int32_t lower_bound(const int32_t* positions, int32_t count, int32_t position) {
  int32_t first = 0;
  while (count > 0) {
    const int32_t half = count / 2;
    if (positions[first + half] < position) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

// Writes the low-bit set. `both`: the best need + low_bit; the selected set is already written.
// Both must be visible to the block; ends with a barrier.
FASA_DEVICE void write_low_bit(const SelectHead& head, const int32_t* both) {
  const SelectPlan& plan = head.plan();
  const int32_t* set = head.set() + (plan.sinks_end - plan.first);
  for (int32_t i = simt::thread_index(); i < plan.in_both(); i += simt::block_threads()) {
    const int32_t at = lower_bound(set, plan.need, both[i]);
    if (at < plan.need && set[at] == both[i]) continue;
    head.low_bit_positions()[i - at] = both[i];
    const int64_t token = both[i] - head.first_page() * kPageTokens;
    for (int h = 0; h < head.group(); h += 4) {
      const SelectHead::Four four = head.four_scores(head.lists().raw, token, h);
      for (int j = 0; j < 4 && h + j < head.group(); ++j) {
        head.low_bit_score(h + j, i - at) = four.of[j];
      }
    }
  }
  if (simt::thread_index() == 0) head.set_low_bit_size(plan.low_bit);
  simt::sync_block();
}

}  // namespace fasa::cuda
