// A cache of one head and one sequence for timing kernels: addresses in one block of memory, and
// the block's contents.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/calls.h"

namespace fasa {

class KernelProbe {
 public:
  static constexpr int kTokens = 8192;
  static constexpr int kFewTokens = 64;  // sets
  static constexpr int kManyTokens = 576;
  static constexpr int kFewSlots = 512;  // hot rows
  static constexpr int kManySlots = 33280;

  KernelProbe();

  size_t bytes() const { return bytes_; }
  // Contents of a block at `base` in device memory.
  std::vector<std::byte> image(std::byte* base) const;
  // Tables of hot rows; a byte of empty ones. A resolve fills them.
  std::span<std::byte> hot_tables(std::byte* base) const;
  static constexpr int kEmptySlots = 0xff;

  SelectParams select(std::byte* base, int set) const;
  // Rows on the host; each call looks for other rows and finds none of them. `slots` 0: local rows.
  ResolveParams resolve(std::byte* base, int slots, int step_index) const;

 private:
  struct Offsets {
    size_t few, many, local;  // descriptors
    size_t page, pages, tail, query, dims;
    size_t sets, sizes, few_table, many_table, scratch;
    size_t set, set_size, counters, rows, ready, fetches, fetch_count;  // results
  };
  SequenceDesc sequence(std::byte* base, int slots) const;
  StepParams step(std::byte* base, int slots) const;

  CacheLayout layout_;
  Offsets at_{};
  size_t bytes_ = 0;
};

}  // namespace fasa
