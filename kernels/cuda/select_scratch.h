// A select's scratch in device memory: a state for each (sequence, KV head), then for each of them
// the scores of the sample and the candidates. Its size depends only on the batch and the set's
// capacity, never on the context. Its contents before a call are irrelevant: every word is written
// before it is read or added to.
#pragma once

#include "kernels/cuda/simt.h"
#include "kernels/layout.h"
#include "kernels/params.h"

namespace fasa::cuda {

inline constexpr int kSamplePages = 128;
inline constexpr int kMaximaPages = 3;  // scored beside the sample, only for their maxima

// State that the blocks of one head share; zero before the scan.
struct SelectState {
  uint32_t rescanned;         // blocks that have finished the rescan
  int32_t candidates;         // found by the scan; those above the capacity are not stored
  int32_t rescan_candidates;  // found by the rescan, likewise
  uint32_t uncertain;         // the candidates do not determine the set: a rescan is needed
  uint32_t floor;             // lowest key that the rescan has to rank
  uint32_t padding[3];
  // then bounds [group], maxima [group], as sort keys
};

// Bounds of a query head's scores.
struct SelectBound {
  float least;    // lowest score that survives
  float sampled;  // largest score known before the scan
};

// Tokens that a head's selection ranks at most.
constexpr int ranked_capacity(const SelectParams& params) {
  return params.selected_capacity + (params.low_bit.capacity > params.runners_up.capacity
                                         ? params.low_bit.capacity
                                         : params.runners_up.capacity);
}

struct SelectScratch {
  int heads = 0;  // sequences x KV heads
  int gqa_group = 1;
  int capacity = 0;  // candidates of a head
  int both = 0;      // entries for set and low-bit set together, if there is a low-bit set

  // `selected_capacity`: ranked_capacity().
  static constexpr SelectScratch of(const CacheLayout& layout, int count, int selected_capacity) {
    // Several times the set, to tolerate errors of the sample's threshold. Holds all of a context
    // up to four times the set.
    const int64_t most = int64_t{4} * selected_capacity + kSamplePages * kPageTokens;
    return {count * layout.kv_heads, layout.gqa_group,
            static_cast<int>(most < INT32_MAX / 2 ? most : INT32_MAX / 2),
            layout.has_values() ? selected_capacity : 0};
  }
  constexpr int64_t state_bytes() const {
    return align_up(int64_t{sizeof(SelectState)} + int64_t{12} * gqa_group);
  }
  constexpr int64_t sample_at() const { return 0; }  // f32 [kSamplePages * kPageTokens][group]
  constexpr int64_t page_maxima_at() const {         // f32 [kSamplePages + kMaximaPages][group]
    return int64_t{gqa_group} * kSamplePages * kPageTokens * 4;
  }
  constexpr int64_t positions_at() const {  // int32 [capacity]
    return page_maxima_at() + align_up(int64_t{4} * gqa_group * (kSamplePages + kMaximaPages));
  }
  constexpr int64_t keys_at() const { return positions_at() + align_up(int64_t{4} * capacity); }
  constexpr int64_t raw_at() const {  // f32 [capacity][group]
    return keys_at() + align_up(int64_t{4} * capacity);
  }
  constexpr int64_t both_at() const {  // int32 [both]
    return raw_at() + align_up(int64_t{4} * capacity * gqa_group);
  }
  constexpr int64_t list_bytes() const { return both_at() + align_up(int64_t{4} * both); }
  constexpr int64_t states_bytes() const { return heads * state_bytes(); }
  constexpr int64_t bytes() const { return states_bytes() + heads * list_bytes(); }
};

}  // namespace fasa::cuda
