// A select's scratch in device memory: for each (sequence, KV head) the scores of all visible
// pages, maxima, and lists. Its size depends on the batch, the set's capacity and the context. Its
// contents before a call are irrelevant: every word is written before it is read.
#pragma once

#include "kernels/cuda/simt.h"
#include "kernels/layout.h"
#include "kernels/params.h"

namespace fasa::cuda {

inline constexpr int kRunTokens = 8;  // whose largest scores are kept
inline constexpr int kPageRuns = kPageTokens / kRunTokens;
inline constexpr int kMaxHeadBlocks = 256;  // that score a head's pages

// Tokens that a head's selection ranks at most.
constexpr int ranked_capacity(const SelectParams& params) {
  return params.selected_capacity + (params.low_bit.capacity > params.runners_up.capacity
                                         ? params.low_bit.capacity
                                         : params.runners_up.capacity);
}

struct SelectScratch {
  int heads = 0;  // sequences x KV heads
  int gqa_group = 1;
  int pages = 0;     // of a head
  int capacity = 0;  // candidates of a head
  int both = 0;      // entries for set and low-bit set together, if there is a low-bit set

  // `ranked`: ranked_capacity(); `pages`: SelectParams::page_capacity.
  static constexpr SelectScratch of(const CacheLayout& layout, int count, int ranked, int pages) {
    // Candidates lie in as many runs as tokens are ranked, and in runs that tie with the last.
    const int64_t most = int64_t{kRunTokens} * (int64_t{ranked} + 512);
    const int64_t tokens = int64_t{pages} * kPageTokens;
    return {count * layout.kv_heads, layout.gqa_group, pages,
            static_cast<int>(most < tokens ? most : tokens), layout.has_values() ? ranked : 0};
  }
  static constexpr SelectScratch of(const SelectParams& params) {
    return of(params.step.layout, params.step.count, ranked_capacity(params), params.page_capacity);
  }
  constexpr int64_t tokens() const { return int64_t{pages} * kPageTokens; }
  constexpr int64_t runs() const { return int64_t{pages} * kPageRuns; }

  // Offsets in a head's part, in bytes.
  constexpr int64_t raw_at() const { return 0; }  // f32 [tokens][group]
  constexpr int64_t run_maxima_at() const {       // f32 [runs][group]
    return raw_at() + align_up(4 * tokens() * gqa_group);
  }
  constexpr int64_t run_keys_at() const {  // uint32 [runs]
    return run_maxima_at() + align_up(4 * runs() * gqa_group);
  }
  constexpr int64_t block_maxima_at() const {  // f32 [kMaxHeadBlocks][group]
    return run_keys_at() + align_up(4 * runs());
  }
  constexpr int64_t positions_at() const {  // int32 [capacity]
    return block_maxima_at() + align_up(int64_t{4} * kMaxHeadBlocks * gqa_group);
  }
  constexpr int64_t keys_at() const { return positions_at() + align_up(int64_t{4} * capacity); }
  constexpr int64_t both_at() const {  // int32 [both]
    return keys_at() + align_up(int64_t{4} * capacity);
  }
  constexpr int64_t head_bytes() const { return both_at() + align_up(int64_t{4} * both); }
  constexpr int64_t bytes() const { return heads * head_bytes(); }
};

}  // namespace fasa::cuda
