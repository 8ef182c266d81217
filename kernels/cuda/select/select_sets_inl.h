// Writes a select's sets, by the block that knows the keys of a head.
#pragma once

#include "kernels/cuda/select/low_bit_select_inl.h"
#include "kernels/cuda/select/select_head_inl.h"

namespace fasa::cuda {

// Writes the set, the low-bit set and the runners-up.
struct SetWriter {
  const SelectHead& head;
  BlockRank& rank;

  // `last`: the last key of plan.ranked() tokens; `each` as in BlockRank.
  template <typename Each>
  FASA_DEVICE void write(RankedKey last, const Each& each) const {
    const SelectPlan& plan = head.plan();
    const RankedKey in_set = key_at(last, plan.need, each);
    write_set(in_set, each);
    if (plan.low_bit > 0) {
      int32_t* both = head.lists().both;
      emit(key_at(last, plan.in_both(), each), plan.in_both(), each, both);
      simt::sync_block();
      write_low_bit(head, both);
    } else {
      if (simt::thread_index() == 0) head.set_low_bit_size(0);
      simt::sync_block();
    }
    write_runners_up(in_set, last, each);
  }

 private:
  // The key of a rank up to plan.ranked().
  template <typename Each>
  FASA_DEVICE RankedKey key_at(RankedKey last, int32_t number, const Each& each) const {
    return number == head.plan().ranked() ? last
                                          : key_of_rank(rank, static_cast<uint32_t>(number), each);
  }

  // Sorts the tokens behind the set by key, then position. If more of them tie than can be sorted,
  // none is written. The set must be visible to the block.
  template <typename Each>
  FASA_DEVICE void write_runners_up(RankedKey in_set, RankedKey last, const Each& each) const {
    const SelectPlan& plan = head.plan();
    if (plan.runners_up == 0) {
      if (simt::thread_index() == 0) head.set_runners_up_size(0);
      return;
    }
    const RankedKey end = key_at(last, plan.need + plan.runners_up, each);
    const int32_t* set = head.set() + (plan.sinks_end - plan.first);
    if (simt::thread_index() == 0) rank.found_rank = 0;
    simt::sync_block();
    each([&](uint32_t key, const auto& position_of) {
      if (key < end.key || key > in_set.key) return;
      const int32_t position = position_of();
      if (key == in_set.key) {
        const int32_t at = lower_bound(set, plan.need, position);
        if (at < plan.need && set[at] == position) return;
      }
      const uint32_t at = simt::atomic_add(&rank.found_rank, 1u);
      if (at < BlockRank::kSorted) {
        rank.sorted[at] = uint64_t{~key} << 32 | static_cast<uint32_t>(position);
      }
    });
    simt::sync_block();
    const auto found = static_cast<int32_t>(rank.found_rank);
    const int32_t size = found > BlockRank::kSorted ? 0 : plan.runners_up;
    if (size > 0) block_sort(rank.sorted, 1, found);
    for (int i = simt::thread_index(); i < size; i += simt::block_threads()) {
      head.runners_up()[i] = static_cast<int32_t>(rank.sorted[i] & 0xffffffffu);
    }
    if (simt::thread_index() == 0) head.set_runners_up_size(size);
    simt::sync_block();
  }

  // The best `count` competing tokens, ascending.
  template <typename Each>
  FASA_DEVICE void emit(RankedKey last, int32_t count, const Each& each, int32_t* out) const {
    if (count > BlockRank::kSorted || !emit_sorted(rank, last, count, each, out)) {
      emit_ranked(rank, last, head.plan().sinks_end, head.plan().recent_begin, each, out);
    }
  }

  template <typename Each>
  FASA_DEVICE void write_set(RankedKey last, const Each& each) const {
    const SelectPlan& plan = head.plan();
    int32_t* out = head.set();
    const int sinks = plan.sinks_end - plan.first;
    const int recent = plan.end - plan.recent_begin;
    for (int i = simt::thread_index(); i < sinks; i += simt::block_threads())
      out[i] = plan.first + i;
    for (int i = simt::thread_index(); i < recent; i += simt::block_threads()) {
      out[sinks + plan.need + i] = plan.recent_begin + i;
    }
    emit(last, plan.need, each, out + sinks);
    if (simt::thread_index() == 0) head.selected_size() = plan.budget;
  }
};

}  // namespace fasa::cuda
