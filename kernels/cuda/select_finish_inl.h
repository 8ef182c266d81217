// A select's fourth kernel (select_inl.h): ranks a head's candidates, by one large block, and
// writes the sets if the candidates determine them.
#pragma once

#include "kernels/cuda/select_kernel_inl.h"
#include "kernels/cuda/select_sets_inl.h"

namespace fasa::cuda {

struct FinishKernel : SelectKernel {
  static constexpr const char* kName = "select finish";
  static constexpr int kThreads = 512;
  static constexpr int kResidentBlocks = 1;

  FASA_DEVICE void operator()() const {
    const SelectHead head(params, scratch, scorers);
    if (!head.scores()) return;
    const SelectLists& lists = head.lists();
    const int32_t asked = simt::load_fresh(&lists.state->candidates);
    // A count above INT32_MAX is negative.
    const bool overflown = asked < 0 || asked > lists.capacity;
    const int32_t count = overflown ? lists.capacity : asked;
    head.load_maxima(rank().maxima);
    const int32_t competing = make_keys(head, count);
    RankedKey last = {0, 0};
    const int32_t wanted = head.plan().ranked();
    if (competing >= wanted) {
      last = key_of_rank(rank(), static_cast<uint32_t>(wanted), EachOfList{lists, count});
    }
    if (overflown || last.key <= greatest_lost_key(head, rank().maxima)) {
      if (simt::thread_index() == 0) {
        lists.state->floor = last.key;
        lists.state->uncertain = 1;
      }
      return;
    }
    SetWriter{head, rank()}.write(last, EachOfList{lists, count});
    if (head.plan().low_bit > 0) copy_low_bit_scores(head, count, last.key);
  }

 private:
  // Keys of the candidates; 0 for tokens that do not compete. Returns how many compete.
  FASA_DEVICE int32_t make_keys(const SelectHead& head, int32_t count) const {
    const SelectLists& lists = head.lists();
    if (simt::thread_index() == 0) rank().found_rank = 0;
    simt::sync_block();
    constexpr int kAhead = SelectHead::kAhead;
    uint32_t mine = 0;
    for (int32_t first = simt::thread_index(); first < count; first += kAhead * kThreads) {
      int32_t positions[kAhead];
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int32_t i = first + a * kThreads;
        positions[a] = simt::load_fresh(lists.positions + (i < count ? i : first));
      }
      uint32_t keys[kAhead];
      head.relative_keys(lists.raw, first, count, rank().maxima, keys);
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int32_t i = first + a * kThreads;
        if (i >= count) break;
        const bool competes = head.competes(positions[a]);
        lists.keys[i] = competes ? keys[a] : 0;
        mine += competes ? 1 : 0;
      }
    }
    return static_cast<int32_t>(block_count(mine));
  }

  // An upper bound of the keys of tokens that did not survive.
  FASA_DEVICE static uint32_t greatest_lost_key(const SelectHead& head, const float* maxima) {
    if (head.stride() == 0) return 0;
    uint32_t greatest = 0;
    for (int h = 0; h < head.group(); ++h) {
      const uint32_t key = key_of(head.lists().bounds[h].least - maxima[h] + 0.0f);
      greatest = greatest < key ? key : greatest;
    }
    return greatest;
  }
};

}  // namespace fasa::cuda
