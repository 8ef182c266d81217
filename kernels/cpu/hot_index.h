// Maps positions to slots of one head's hot rows and to candidates for them: open addressing, at
// most half full.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/hot_slots.h"

namespace fasa::cpu {

class HotIndex {
 public:
  // `buckets`: bucket_count(slots.count + candidates that will be added).
  HotIndex(const HotSlots& slots, int candidates, int32_t* buckets)
      : slots_(slots), buckets_(buckets), mask_(bucket_count(slots.count + candidates) - 1) {
    std::fill_n(buckets_, mask_ + 1, -1);
    for (int32_t slot = 0; slot < slots_.count; ++slot) {
      if (slots_.positions[slot] >= 0) put(slots_.positions[slot], slot);
    }
  }
  static uint32_t bucket_count(int entries) {
    return std::bit_ceil(2 * static_cast<uint32_t>(entries) + 1);
  }
  // Returns a slot; slots.count + n for the n-th candidate; -1 if absent.
  int32_t find(int32_t position) const {
    for (uint32_t at = hash(position);; at = (at + 1) & mask_) {
      const int32_t entry = buckets_[at];
      if (entry < 0 || position_of(entry) == position) return entry;
    }
  }
  // Adds candidates[number]; the array must stay valid.
  void add(const int32_t* candidates, int32_t number) {
    candidates_ = candidates;
    put(candidates[number], slots_.count + number);
  }

 private:
  uint32_t hash(int32_t position) const {
    const uint32_t mixed = static_cast<uint32_t>(position) * 2654435769u;  // 2^32 / golden ratio
    return (mixed ^ mixed >> 15) & mask_;
  }
  int32_t position_of(int32_t entry) const {
    return entry < slots_.count ? slots_.positions[entry] : candidates_[entry - slots_.count];
  }
  void put(int32_t position, int32_t entry) {
    uint32_t at = hash(position);
    while (buckets_[at] >= 0) at = (at + 1) & mask_;
    buckets_[at] = entry;
  }

  const HotSlots slots_;
  const int32_t* candidates_ = nullptr;
  int32_t* buckets_;
  uint32_t mask_;
};

}  // namespace fasa::cpu
