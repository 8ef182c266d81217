// Writes a select's sets, by the block that knows the keys of a head.
#pragma once

#include "kernels/cuda/low_bit_select_inl.h"
#include "kernels/cuda/select_head_inl.h"

namespace fasa::cuda {

// Visits the keys of a list, written by any block; several loads are in flight together.
struct EachOfList {
  static constexpr int kAhead = 8;

  const SelectLists& lists;
  int32_t count;

  template <typename Visit>
  FASA_DEVICE void operator()(const Visit& visit, int = 0, int = 0) const {
    for (int32_t first = simt::thread_index(); first < count;
         first += kAhead * simt::block_threads()) {
      uint32_t keys[kAhead];
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int32_t i = first + a * simt::block_threads();
        keys[a] = simt::load_fresh(lists.keys + (i < count ? i : first));
        keys[a] = i < count ? keys[a] : 0;
      }
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int32_t i = first + a * simt::block_threads();
        if (keys[a] != 0) visit(keys[a], [&] { return simt::load_fresh(lists.positions + i); });
      }
    }
  }
};

// Writes the set and the low-bit set's positions, not its scores.
struct SetWriter {
  const SelectHead& head;
  BlockRank& rank;

  // `last`: the last key of both sets together; `each` as in BlockRank.
  template <typename Each>
  FASA_DEVICE void write(RankedKey last, const Each& each) const {
    const SelectPlan& plan = head.plan();
    if (plan.low_bit == 0) {
      if (simt::thread_index() == 0) head.set_low_bit_size(0);
      write_set(last, each);
      simt::sync_block();
      return head.take_out_set();
    }
    write_set(key_of_rank(rank, static_cast<uint32_t>(plan.need), each), each);
    int32_t* both = head.lists().both;
    emit(last, plan.ranked(), each, both);
    simt::sync_block();
    write_low_bit_positions(head, both);
  }

 private:
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
