#include "runtime/text/merge_table.h"

#include <bit>

namespace fasa::text {
namespace {

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t merges)
    : slots_(std::bit_ceil(2 * merges + 2), Slot{kEmpty, {0, 0}}),
      shift_(64 - std::countr_zero(slots_.size())) {}

// Fibonacci hashing with linear probing.
size_t MergeTable::slot_of(uint64_t pair) const {
  size_t slot = static_cast<size_t>(pair * 0x9e3779b97f4a7c15u >> shift_);
  while (slots_[slot].pair != pair && slots_[slot].pair != kEmpty) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {pair, merge};
}

const Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[slot_of(pair_of(left, right))];
  return slot.pair == kEmpty ? nullptr : &slot.merge;
}

}  // namespace fasa::text
