// Scores one sequence's pages for the query heads of one KV head: locates the page, gathers the
// query into slice order once, and handles non-finite and invisible tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "kernels/cpu/select/score_bodies.h"
#include "kernels/params.h"

namespace fasa::cpu {

// Index of a precision's body in ScoreBodies::score.
constexpr int score_index(SliceDType dtype) {
  return is_coded(dtype) ? 2 + code_width_index(slice_bits(dtype)) : static_cast<int>(dtype);
}

// Memory that only grows, 64-byte aligned: no allocation after the first steps.
template <typename T>
class ScratchArray {
 public:
  // New memory is zeroed; old contents are lost.
  T* reserve(size_t count) {
    const size_t lines = (count * sizeof(T) + sizeof(Line) - 1) / sizeof(Line);
    if (lines > lines_.size()) lines_ = std::vector<Line>(lines);
    return data();
  }
  T* data() { return reinterpret_cast<T*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

// Output of scoring a page, shared by all heads of a thread in turn: separate buffers for eight
// heads would not fit the L1 cache.
class PageScratch {
 public:
  void begin(const CacheLayout& layout);
  float* weights() { return weights_.data(); }
  int8_t* codes() { return codes_.data(); }
  float* scores() { return scores_.data(); }  // [heads][64]

 private:
  ScratchArray<float> weights_;
  ScratchArray<int8_t> codes_;
  ScratchArray<float> scores_;
};

class PageScorer {
 public:
  // `first_visible`: earlier positions are not scored.
  void begin(const SelectParams& params, int sequence, int kv_head, int first_visible,
             const ScoreBodies& bodies);

  int heads() const { return heads_; }
  uint64_t bytes_read() const { return bytes_read_; }
  uint64_t nan_scores() const { return nan_scores_; }

  // Start of `page`, for score() to prefetch while another page is scored; its base is prefetched
  // here.
  const std::byte* ahead(int page) const;
  // scores[heads][64], 64-byte aligned, include the terms that SelectParams adds to q·k. NaN
  // becomes -inf, +inf the largest finite number; invisible tokens are -inf. `next`: ahead() of a
  // page scored soon, or null. `scratch`: begun, and exclusive to this call. Returns the visible
  // tokens.
  uint64_t score(int page, const std::byte* next, PageScratch* scratch, float* scores);

  uint64_t visible_tokens(int page) const;

 private:
  struct Source {
    const std::byte* data;
    float base;
    SliceFormat format;
  };
  Source source_of(int page) const;
  void make_finite(uint64_t visible, float* scores);
  void add_slopes(int page, float* scores) const;

  const ScoreBodies* bodies_ = nullptr;
  const SequenceDesc* sequence_ = nullptr;
  SliceFormat format_;
  int scored_dims_ = 0;
  int64_t slice_offset_ = 0;
  int64_t base_offset_ = 0;
  int64_t tail_offset_ = 0;
  int heads_ = 0;
  int stride_ = 0;
  const float* slopes_ = nullptr;  // [heads], or null
  float score_cap_ = 0;            // 0: none
  int first_visible_ = 0;
  int end_ = 0;
  uint64_t bytes_read_ = 0;
  uint64_t nan_scores_ = 0;
  ScratchArray<float> query_;
};

}  // namespace fasa::cpu
