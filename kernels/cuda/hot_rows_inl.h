// One block's work on the hot rows of a (sequence, KV head): looks positions up, and chooses the
// slots to evict, in the order of kernels/replacement.h.
#pragma once

#include "kernels/cuda/block_sum_inl.h"
#include "kernels/cuda/simt.h"
#include "kernels/hot_slots.h"
#include "kernels/params.h"

namespace fasa::cuda {

inline constexpr int kHotThreads = 512;

struct HotShared {
  static constexpr int kBins = 1024;
  static constexpr int kSorted =
      1024;  // victims sorted in shared memory; more are sorted in the fetch list

  uint64_t warp_sums[simt::kWarpThreads];
  uint64_t sorted[kSorted];
  uint32_t bins[kBins];
  int32_t stop;
  int32_t digit;
  int32_t rank;
};

// Chosen slots, in eviction order: slot = low bits of keys[i * stride].
struct Victims {
  static constexpr int kSlotBits = 25;
  uint64_t* keys;
  int stride;
  int count;

  FASA_DEVICE int32_t slot(int i) const {
    return static_cast<int32_t>(keys[int64_t{i} * stride] & ((uint64_t{1} << kSlotBits) - 1));
  }
};

// One head of one sequence.
class HotHead {
 public:
  FASA_DEVICE HotHead(const StepParams& step, const SequenceDesc& sequence, int32_t* hot_table,
                      int kv_head)
      : step_(step),
        sequence_(sequence),
        kv_head_(kv_head),
        slots_(HotSlots::of(step.layout, hot_table, step.attending_layer(), kv_head,
                            sequence.hot_rows)) {}

  FASA_DEVICE const HotSlots& slots() const { return slots_; }
  FASA_DEVICE bool is_protected(int position) const {
    return position < step_.layout.sinks || position >= sequence_.end() - step_.layout.recent;
  }
  FASA_DEVICE const std::byte* protected_row(int position) const {
    return sequence_.protected_rows +
           step_.layout.protected_offset(step_.layer, kv_head_,
                                         step_.layout.protected_slot(position));
  }
  FASA_DEVICE const std::byte* block_row(int position) const {
    return sequence_.row_blocks[position / kPageTokens] + row_offset(position);
  }
  // Address in the page's device copy, or null.
  FASA_DEVICE const std::byte* device_row(int position) const {
    const std::byte* block = sequence_.device_row_block(position / kPageTokens);
    return block == nullptr ? nullptr : block + row_offset(position);
  }
  FASA_DEVICE std::byte* hot_row(int32_t slot) const {
    return sequence_.hot +
           step_.layout.hot_offset(step_.attending_layer(), kv_head_, slot, slots_.count);
  }
  FASA_DEVICE static HotShared& shared() { return simt::shared<HotShared>(); }

  // Chooses up to `wanted` slots for which `keep(slot)` is false and that this step has not used.
  // `overflow`: device memory for `wanted` keys, 16 bytes apart. All threads of the block call it.
  // The results are those of kernels/replacement.h; Clock moves its hand and marks the slots that
  // it chooses as used in this step.
  template <typename Keep>
  FASA_DEVICE Victims choose(Replacement policy, int32_t step, const Keep& keep, int wanted,
                             void* overflow) const {
    const bool room = wanted <= HotShared::kSorted;
    Victims victims = {room ? shared().sorted : static_cast<uint64_t*>(overflow), room ? 1 : 2, 0};
    if (policy == Replacement::kClock) {
      choose_by_clock(step, keep, wanted, &victims);
    } else if (wanted > 0) {
      const Last last = find_last(policy, step, keep, wanted);
      gather(policy, step, keep, last, &victims);
      block_sort(victims.keys, victims.stride, victims.count);
    }
    simt::sync_block();
    return victims;
  }

 private:
  static constexpr uint64_t kNever = ~uint64_t{0};

  FASA_DEVICE int64_t row_offset(int position) const {
    return step_.layout.row_offset(step_.layer, kv_head_, position % kPageTokens);
  }
  // Eviction order. 0: empty; 1: holds a prediction that no set used; 2: by the policy.
  FASA_DEVICE int rank_of(int slot) const {
    if (slots_.positions[slot] < 0) return 0;
    return is_prediction(slots_.last_uses[slot]) ? 1 : 2;
  }
  template <typename Keep>
  FASA_DEVICE bool may_go(int slot, int32_t step, const Keep& keep) const {
    const bool free = slots_.positions[slot] < 0 || step_of(slots_.last_uses[slot]) != step;
    return free && !keep(slot);
  }

  // The smallest key is evicted first: rank (2 bits), order (37 bits), slot (25 bits).
  template <typename Keep>
  FASA_DEVICE uint64_t key_of(Replacement policy, int slot, int32_t step, const Keep& keep) const {
    if (!may_go(slot, step, keep)) return kNever;
    constexpr uint64_t kMinOften = 840;  // a multiple of 1 to kMaxUses + 1
    constexpr uint64_t kMaxOrder = (uint64_t{1} << 37) - 1;
    const int rank = rank_of(slot);
    const int32_t last_use = slots_.last_uses[slot];
    uint64_t order = 0;
    if (rank > 0) {
      const auto idle = static_cast<uint64_t>(step - step_of(last_use));
      order = policy == Replacement::kLru
                  ? static_cast<uint64_t>(step_of(last_use))
                  : kMaxOrder - idle * kMinOften / static_cast<uint64_t>(uses_of(last_use) + 1);
    }
    return static_cast<uint64_t>(rank) << 62 | order << Victims::kSlotBits |
           static_cast<uint64_t>(slot);
  }

  // Slots to evict: those with orders below `order`, and the first `ties` of those equal to it.
  struct Last {
    uint64_t order;
    int32_t ties;
  };

  // Finds the `wanted`-th smallest order (rank and order of a key, without its slot) by histograms
  // of its digits; selects all slots if there are fewer.
  template <typename Keep>
  FASA_DEVICE Last find_last(Replacement policy, int32_t step, const Keep& keep, int wanted) const {
    constexpr int kDigits = 4;
    constexpr int kDigitBits = 10;
    static_assert(1 << kDigitBits == HotShared::kBins &&
                  kDigits * kDigitBits >= 64 - Victims::kSlotBits);
    Last last = {0, wanted};
    for (int shift = (kDigits - 1) * kDigitBits; shift >= 0; shift -= kDigitBits) {
      const int known = shift + kDigitBits;
      count_digits(policy, step, keep, last.order >> known, shift);
      if (!find_digit(last.ties)) return {kNever, 0};
      last.order |= static_cast<uint64_t>(shared().digit) << shift;
      last.ties = shared().rank;
      simt::sync_block();
    }
    return last;
  }

  // Counts the digit at `shift` of the orders with higher digits `prefix`.
  template <typename Keep>
  FASA_DEVICE void count_digits(Replacement policy, int32_t step, const Keep& keep, uint64_t prefix,
                                int shift) const {
    HotShared& of = shared();
    for (int i = simt::thread_index(); i < HotShared::kBins; i += simt::block_threads()) {
      of.bins[i] = 0;
    }
    simt::sync_block();
    for (int slot = simt::thread_index(); slot < slots_.count; slot += simt::block_threads()) {
      const uint64_t key = key_of(policy, slot, step, keep);
      const uint64_t digits = key >> Victims::kSlotBits >> shift;
      if (key == kNever || digits / HotShared::kBins != prefix) continue;
      simt::atomic_add(&of.bins[digits % HotShared::kBins], 1u);
    }
    simt::sync_block();
  }

  // The bin that holds the `rank`-th smallest, and its rank in the bin. False if there are fewer.
  FASA_DEVICE static bool find_digit(int32_t rank) {
    HotShared& of = shared();
    constexpr int kEach = HotShared::kBins / kHotThreads;
    const int first = simt::thread_index() * kEach;
    uint64_t mine = 0;
    for (int i = first; i < first + kEach; ++i) mine += of.bins[i];
    const BlockSum sum = block_prefix_sum(mine, of.warp_sums);
    auto before = static_cast<int32_t>(sum.through - mine);
    if (before < rank && rank <= static_cast<int32_t>(sum.through)) {  // true in one thread
      int bin = first;
      while (before + static_cast<int32_t>(of.bins[bin]) < rank) {
        before += static_cast<int32_t>(of.bins[bin++]);
      }
      of.digit = bin;
      of.rank = rank - before;
    }
    simt::sync_block();
    return static_cast<int32_t>(sum.all) >= rank;
  }

  // Writes the keys of the slots to evict, by slot.
  template <typename Keep>
  FASA_DEVICE void gather(Replacement policy, int32_t step, const Keep& keep, const Last& last,
                          Victims* victims) const {
    int32_t ties_before = 0;
    for (int begin = 0; begin < slots_.count; begin += simt::block_threads()) {
      const int slot = begin + simt::thread_index();
      const uint64_t key = slot < slots_.count ? key_of(policy, slot, step, keep) : kNever;
      const uint64_t order = key >> Victims::kSlotBits;
      const bool below = key != kNever && order < last.order;
      const bool tie = key != kNever && order == last.order;
      const BlockSum sum =
          block_prefix_sum((below ? uint64_t{1} << 32 : 0) | (tie ? 1 : 0), shared().warp_sums);
      const auto ties = ties_before + static_cast<int32_t>(sum.through & 0xffffffffu);
      const int32_t taken = ties < last.ties ? ties : last.ties;
      const int32_t taken_before = ties_before < last.ties ? ties_before : last.ties;
      const auto index =
          victims->count + static_cast<int32_t>(sum.through >> 32) + taken - taken_before - 1;
      if (below || (tie && ties <= last.ties))
        victims->keys[int64_t{index} * victims->stride] = key;
      ties_before += static_cast<int32_t>(sum.all & 0xffffffffu);
      const int32_t taken_after = ties_before < last.ties ? ties_before : last.ties;
      victims->count += static_cast<int32_t>(sum.all >> 32) + taken_after - taken_before;
    }
    simt::sync_block();
  }

  // Takes empty slots and unused predictions by slot; then the hand moves, at most twice around: it
  // passes over used slots and clears their counts of uses.
  template <typename Keep>
  FASA_DEVICE void choose_by_clock(int32_t step, const Keep& keep, int wanted,
                                   Victims* victims) const {
    for (int rank = 0; rank < 2; ++rank) {
      for (int begin = 0; begin < slots_.count && victims->count < wanted;
           begin += simt::block_threads()) {
        const int slot = begin + simt::thread_index();
        const bool goes = slot < slots_.count && rank_of(slot) == rank && may_go(slot, step, keep);
        take(goes, slot, wanted, victims);
      }
    }
    if (slots_.count == 0) return;
    const int first = *slots_.hand < 0 || *slots_.hand >= slots_.count ? 0 : *slots_.hand;
    int hand = first;
    for (int lap = 0; lap < 2 && victims->count < wanted; ++lap) {
      for (int begin = 0; begin < slots_.count && victims->count < wanted;
           begin += simt::block_threads()) {
        hand = pass_over(first, begin, step, keep, wanted, victims);
      }
    }
    simt::sync_block();
    if (simt::thread_index() == 0) *slots_.hand = hand;
  }

  // Takes slots from the `begin`-th after `first` on, one per thread; returns where the hand stops.
  template <typename Keep>
  FASA_DEVICE int pass_over(int first, int begin, int32_t step, const Keep& keep, int wanted,
                            Victims* victims) const {
    const int at = begin + simt::thread_index();
    const int slot = (first + at) % slots_.count;
    const bool candidate = at < slots_.count && rank_of(slot) == 2 && may_go(slot, step, keep);
    const int32_t last_use = candidate ? slots_.last_uses[slot] : 0;
    if (simt::thread_index() == 0) {
      const int end = begin + simt::block_threads();
      shared().stop = (end < slots_.count ? end : slots_.count) - 1;
    }
    simt::sync_block();
    const bool chosen =
        take(candidate && uses_of(last_use) == 0, slot, wanted, victims, &shared().stop, at);
    const int stop = shared().stop;
    if (chosen) {
      slots_.last_uses[slot] = slot_use(step, 0);  // marked as used: it is not taken twice
    } else if (candidate && uses_of(last_use) > 0 && at <= stop) {
      slots_.last_uses[slot] = slot_use(step_of(last_use), 0);
    }
    simt::sync_block();
    return (first + stop + 1) % slots_.count;
  }

  // Adds the threads' slots in thread order until there are enough; returns whether this thread's
  // was taken. The thread of the last slot taken writes `at` to *stop.
  FASA_DEVICE static bool take(bool goes, int slot, int wanted, Victims* victims,
                               int32_t* stop = nullptr, int at = 0) {
    const BlockSum sum = block_prefix_sum(goes ? 1 : 0, shared().warp_sums);
    const int index = victims->count + static_cast<int>(sum.through) - 1;
    const bool taken = goes && index < wanted;
    if (taken) victims->keys[int64_t{index} * victims->stride] = static_cast<uint64_t>(slot);
    if (taken && index == wanted - 1 && stop != nullptr) *stop = at;
    const int all = victims->count + static_cast<int>(sum.all);
    victims->count = all < wanted ? all : wanted;
    simt::sync_block();
    return taken;
  }

  const StepParams& step_;
  const SequenceDesc& sequence_;
  const int kv_head_;
  const HotSlots slots_;
};

// Index of `position` in an ascending list, or -1.
FASA_DEVICE int find_sorted(const int32_t* list, int count, int32_t position) {
  int low = 0;
  int high = count;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (list[middle] < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count && list[low] == position ? low : -1;
}

// Adds a warp's sum of `amount` to a counter in device memory.
FASA_DEVICE void add_counter(uint64_t* counter, int amount) {
  const int sum = simt::warp_sum(amount);
  if (sum != 0 && simt::lane() == 0) simt::atomic_add(counter, static_cast<uint64_t>(sum));
}

}  // namespace fasa::cuda
