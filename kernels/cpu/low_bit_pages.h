// The part of FAC that attends to a low-bit set by whole pages, in blocks of kLowBitBlockPages.
#pragma once

#include <cstdint>

#include "kernels/cpu/low_bit_bodies.h"
#include "kernels/params.h"

namespace fasa::cpu {

// Where a block's partials go.
struct LowBitPartials {
  float* first = nullptr;    // of the first KV head of the call and its first query head
  int64_t head_stride = 0;   // from one KV head to the next
  int64_t query_stride = 0;  // from one query head to the next
};

class LowBitBlocks {
 public:
  LowBitBlocks(const LowBitBodies& bodies, const AttendParams& params)
      : bodies_(bodies), params_(params), layout_(params.step.layout) {}

  // Blocks of the largest possible set; 0: none.
  int max_blocks() const { return low_bit_blocks(params_.low_bit_pages.capacity); }
  // Blocks of one (sequence, KV head), by flat index.
  int blocks(int index) const { return low_bit_blocks(pages(index)); }
  int pages(int index) const {
    return params_.low_bit_pages.capacity == 0 ? 0 : params_.low_bit_pages.counts[index];
  }
  // Attends to one block of a sequence for KV heads [heads.begin, heads.end). Heads are the outer
  // loop, so that the sums of one stay in the cache. Returns the bytes read.
  uint64_t compute(int sequence, HeadSpan heads, int block, const LowBitPartials& partials) const;

 private:
  struct Work;
  void weigh_pages(Work& work, int head) const;
  void attend_sealed(Work& work, int head) const;
  void attend_tail(Work& work, int head, float* partials, int64_t stride) const;

  const LowBitBodies& bodies_;
  const AttendParams& params_;
  const CacheLayout& layout_;
};

}  // namespace fasa::cpu
