// Hash table of merges: two pieces -> rank and merged piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fasa::text {

struct Merge {
  uint32_t rank;  // lower ranks merge first
  int32_t id;     // the merged piece
};

// Filled, then immutable and thread-safe.
class MergeTable {
 public:
  explicit MergeTable(size_t merges);
  // A later merge of the same pair replaces an earlier one.
  void set(int32_t left, int32_t right, Merge merge);
  // Null if they do not merge.
  const Merge* find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;
  size_t slot_of(uint64_t pair) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
  int shift_;
};

}  // namespace fasa::text
