// Which two pieces merge into which, and which merge goes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fasa::text {

struct Merge {
  uint32_t rank;  // lower ones first
  int32_t id;     // what the two become
};

// Filled, then read by any number of threads.
class MergeTable {
 public:
  explicit MergeTable(size_t merges);
  // The last of two merges of one pair counts.
  void set(int32_t left, int32_t right, Merge merge);
  // Null where they do not merge.
  const Merge* find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;
  size_t slot_of(uint64_t pair) const;

  std::vector<Slot> slots_;  // a power of two of them, at most half full
  int shift_;
};

}  // namespace fasa::text
