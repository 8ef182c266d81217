// A select's low-bit set, written by the block that has ranked a head: the tokens of the best need
// + low_bit that are not among the best `need`, and their scores.
#pragma once

#include "kernels/cuda/select_head_inl.h"

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
FASA_DEVICE void write_low_bit_positions(const SelectHead& head, const int32_t* both) {
  const SelectPlan& plan = head.plan();
  const int32_t* set = head.set() + (plan.sinks_end - plan.first);
  for (int32_t i = simt::thread_index(); i < plan.in_both(); i += simt::block_threads()) {
    const int32_t at = lower_bound(set, plan.need, both[i]);
    if (at < plan.need && set[at] == both[i]) continue;
    head.low_bit_positions()[i - at] = both[i];
  }
  if (simt::thread_index() == 0) head.set_low_bit_size(plan.low_bit);
  simt::sync_block();
}

// Copies scores from the candidates; competing ones have keys from `least` on. A thread visits the
// keys that it wrote itself.
FASA_DEVICE void copy_low_bit_scores(const SelectHead& head, int32_t count, uint32_t least) {
  const SelectLists& lists = head.lists();
  const int32_t low_bit = head.plan().low_bit;
  for (int32_t i = simt::thread_index(); i < count; i += simt::block_threads()) {
    if (lists.keys[i] < least || lists.keys[i] == 0) continue;
    const int32_t position = simt::load_fresh(lists.positions + i);
    const int32_t at = lower_bound(head.low_bit_positions(), low_bit, position);
    if (at == low_bit || head.low_bit_positions()[at] != position) continue;
    for (int h = 0; h < head.group(); h += 4) {
      const SelectHead::Four four = head.four_scores(lists.raw, i, h);
      for (int j = 0; j < 4 && h + j < head.group(); ++j)
        head.low_bit_score(h + j, at) = four.of[j];
    }
  }
}

// Used if no scores were stored: scores the low-bit set's pages again, one warp per page.
FASA_DEVICE void score_low_bit(const SelectHead& head, const PageScorer& scorer) {
  const int32_t* positions = head.low_bit_positions();
  const int32_t count = head.plan().low_bit;
  if (count == 0 || simt::warp() >= scorer.warps()) return;
  for (int32_t i = simt::warp(), page = -1; i < count; i += scorer.warps()) {
    const int32_t of = positions[i] / kPageTokens;
    if (of != page) scorer.score(of, scorer.block_of(of));
    page = of;
    for (int h = simt::lane(); h < head.group(); h += simt::kWarpThreads) {
      int ignored = 0;
      head.low_bit_score(h, i) =
          finite_score(scorer.scores()[h * kScoreStride + positions[i] % kPageTokens], &ignored);
    }
  }
}

}  // namespace fasa::cuda
