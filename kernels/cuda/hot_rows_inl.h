// One block's work on the hot rows of a (sequence, KV head): finds positions among its slots, and
// evicts slots in the order of kernels/replacement.h. Each of the two reads all slots once, with
// kEach of a thread's in flight.
#pragma once

#include "kernels/cuda/block_sum_inl.h"
#include "kernels/cuda/simt.h"
#include "kernels/hot_slots.h"
#include "kernels/params.h"
#include "kernels/replacement.h"

namespace fasa::cuda {

inline constexpr int kHotThreads = 512;

// A set of positions of a window of kPositions tokens that begins at a multiple of it.
struct PositionBits {
  static constexpr int kPositions = 1 << 17;
  uint32_t words[kPositions / 32];

  FASA_DEVICE static int window_of(int32_t position) { return position / kPositions; }
  FASA_DEVICE static int word_of(int32_t position) { return position % kPositions / 32; }
  FASA_DEVICE static uint32_t bit_of(int32_t position) { return 1u << position % 32; }
  FASA_DEVICE void clear() {
    for (int i = simt::thread_index(); i < kPositions / 32; i += simt::block_threads()) {
      words[i] = 0;
    }
  }
  // Returns whether another thread had added it.
  FASA_DEVICE bool add(int32_t position) {
    const uint32_t bit = bit_of(position);
    return (simt::atomic_or(&words[word_of(position)], bit) & bit) != 0;
  }
  // Takes a position in the window.
  FASA_DEVICE bool has(int32_t position) const {
    return (words[word_of(position)] & bit_of(position)) != 0;
  }
};

struct HotShared {
  uint64_t warp_sums[simt::kWarpThreads];
  uint32_t counts[kEvictionOrders];  // slots of each order
  int32_t order;
  int32_t ties;
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
    return sequence_.is_protected(step_.layout, position);
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

  // Calls visit(slot, position, last_use) for each slot; a slot's thread is always the same.
  template <typename Visit>
  FASA_DEVICE void for_each_slot(const Visit& visit) const {
    for (int begin = 0; begin < slots_.count; begin += kChunk) {
      const Chunk chunk = load(begin);
      FASA_UNROLL
      for (int k = 0; k < kEach; ++k) {
        const int slot = slot_of(begin, k);
        if (slot < slots_.count) visit(slot, chunk.positions[k], chunk.last_uses[k]);
      }
    }
  }

  // Evictions: begin_counts, a barrier, count for each slot that may go, then evict. All threads of
  // the block call the first and the last.
  FASA_DEVICE static void begin_counts() {
    for (int i = simt::thread_index(); i < kEvictionOrders; i += simt::block_threads()) {
      shared().counts[i] = 0;
    }
  }
  FASA_DEVICE static void count(int32_t position, int32_t last_use, int32_t step) {
    const int order = eviction_order(position, last_use, step);
    if (order < kEvictionOrders) simt::atomic_add(&shared().counts[order], 1u);
  }

  // Calls take(n, slot) for the `wanted` slots that go first, or all that may go; n counts them in
  // ascending order of slots. Before, calls renew(slot, position, last_use) for each slot, which
  // returns the last use that counts. Returns how many there are.
  template <typename Renew, typename Take>
  FASA_DEVICE int evict(int32_t step, int wanted, const Renew& renew, const Take& take) const {
    const Last last = find_last(wanted);
    uint64_t before = 0;  // chosen below the last order << 32 | of the last order
    for (int begin = 0; begin < slots_.count; begin += kChunk) {
      const Chunk chunk = load(begin);
      uint32_t below[kEach];
      uint32_t ties[kEach];
      uint64_t mine = 0;
      FASA_UNROLL
      for (int k = 0; k < kEach; ++k) {
        const int slot = slot_of(begin, k);
        int order = kEvictionOrders;
        if (slot < slots_.count) {
          const int32_t position = chunk.positions[k];
          order = eviction_order(position, renew(slot, position, chunk.last_uses[k]), step);
        }
        below[k] = simt::ballot(order < last.order);
        ties[k] = simt::ballot(order == last.order);
        mine += pair(simt::count_bits(below[k]), simt::count_bits(ties[k]));
      }
      const BlockSum sum = warps_prefix_sum(mine, shared().warp_sums);
      uint64_t at = before + sum.through - mine;
      FASA_UNROLL
      for (int k = 0; k < kEach; ++k) {
        const uint32_t lower = simt::lower_lanes();
        const uint32_t bit = 1u << simt::lane();
        const uint64_t here =
            at + pair(simt::count_bits(below[k] & lower), simt::count_bits(ties[k] & lower));
        const bool tie = (ties[k] & bit) != 0 && second(here) < last.ties;
        if ((below[k] & bit) != 0 || tie) take(chosen(here, last), slot_of(begin, k));
        at += pair(simt::count_bits(below[k]), simt::count_bits(ties[k]));
      }
      before += sum.all;
    }
    simt::sync_block();
    return chosen(before, last);
  }

 private:
  static constexpr int kEach = 8;
  static constexpr int kChunk = kHotThreads * kEach;

  struct Chunk {
    int32_t positions[kEach];
    int32_t last_uses[kEach];
  };
  // Slots that go: those of orders before `order`, and the first `ties` of it.
  struct Last {
    int order;
    int ties;
  };

  FASA_DEVICE int64_t row_offset(int position) const {
    return step_.layout.row_offset(step_.layer, kv_head_, position % kPageTokens);
  }
  // A warp's slots follow each other.
  FASA_DEVICE static int slot_of(int begin, int k) {
    return begin + (simt::warp() * kEach + k) * simt::kWarpThreads + simt::lane();
  }
  FASA_DEVICE Chunk load(int begin) const {
    Chunk chunk;
    FASA_UNROLL
    for (int k = 0; k < kEach; ++k) {
      const int slot = slot_of(begin, k);
      chunk.positions[k] = slot < slots_.count ? slots_.positions[slot] : 0;
      chunk.last_uses[k] = slot < slots_.count ? slots_.last_uses[slot] : 0;
    }
    return chunk;
  }
  FASA_DEVICE static uint64_t pair(int first, int second) {
    return static_cast<uint64_t>(first) << 32 | static_cast<uint32_t>(second);
  }
  FASA_DEVICE static int second(uint64_t pair) { return static_cast<int>(pair & 0xffffffffu); }
  FASA_DEVICE static int chosen(uint64_t passed, const Last& last) {
    const int ties = second(passed);
    return static_cast<int>(passed >> 32) + (ties < last.ties ? ties : last.ties);
  }

  // From the counts of all slots that may go.
  FASA_DEVICE static Last find_last(int wanted) {
    HotShared& of = shared();
    constexpr int kBins = kEvictionOrders / kHotThreads;
    static_assert(kEvictionOrders % kHotThreads == 0);
    const int first = simt::thread_index() * kBins;
    uint64_t mine = 0;
    simt::sync_block();
    for (int i = first; i < first + kBins; ++i) mine += of.counts[i];
    const BlockSum sum = block_prefix_sum(mine, of.warp_sums);
    if (wanted <= 0 || static_cast<int64_t>(sum.all) < wanted) {
      return {wanted <= 0 ? 0 : kEvictionOrders, 0};
    }
    int left = wanted - static_cast<int>(sum.through - mine);
    if (left > 0 && left <= static_cast<int>(mine)) {  // true in one thread
      int order = first;
      while (left > static_cast<int>(of.counts[order])) {
        left -= static_cast<int>(of.counts[order++]);
      }
      of.order = order;
      of.ties = left;
    }
    simt::sync_block();
    return {of.order, of.ties};
  }

  const StepParams& step_;
  const SequenceDesc& sequence_;
  const int kv_head_;
  const HotSlots slots_;
};

// Adds a warp's sum of `amount` to a counter in device memory.
FASA_DEVICE void add_counter(uint64_t* counter, int amount) {
  const int sum = simt::warp_sum(amount);
  if (sum != 0 && simt::lane() == 0) simt::atomic_add(counter, static_cast<uint64_t>(sum));
}

}  // namespace fasa::cuda
