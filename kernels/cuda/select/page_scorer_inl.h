// Scores of one slice page by one warp, for a KV head's query heads of one token or of several of a
// sequence: S = Σ q k over the slice, plus ALiBi's term if there are slopes, then the cap. A page's
// scores have the same bits wherever they are computed.
//
//   codes       tensor cores (code_scorer_inl.h); one by one if a query is not finite, so that
//               infinities are computed correctly
//   bf16, f32   fused multiply-adds, two tokens per lane (float_scorer_inl.h)
#pragma once

#include "kernels/cuda/math_inl.h"
#include "kernels/cuda/select/code_scorer_inl.h"
#include "kernels/cuda/select/float_scorer_inl.h"
#include "kernels/cuda/select/scorer_memory_inl.h"
#include "kernels/cuda/simt.h"
#include "kernels/params.h"

namespace fasa::cuda {

class PageScorer {
 public:
  // Called by every thread of the block; ends with a barrier. `sequences`: as many tokens as
  // `layout` has queries for. `memory`: ScorerLayout::bytes() of shared memory.
  FASA_DEVICE PageScorer(const SelectParams& params, const SequenceDesc* sequences, int kv_head,
                         const ScorerLayout& layout, std::byte* memory)
      : sequence_(*sequences),
        group_(params.step.layout.gqa_group),
        memory_(ScorerMemory::of(params, layout, memory)),
        slice_offset_(params.step.layout.slice_offset(params.step.layer, kv_head)),
        base_at_(params.step.layout.head_index(params.step.layer, kv_head)),
        tail_(sequence_.tail + params.step.layout.tail_offset(params.step.layer, kv_head)),
        sealed_(sequence_.sealed_pages()),
        slopes_(params.step.slopes == nullptr ? nullptr
                                              : params.step.slopes + int64_t{kv_head} * group_),
        score_cap_(params.step.score_cap) {
    memory_.load_queries(params, sequences, kv_head);
    simt::sync_block();
    spoilt_ = *memory_.spoilt();
  }

  // [queries][kScoreStride], this warp's; NaN and infinities are not replaced yet.
  FASA_DEVICE const float* scores() const { return memory_.mine; }
  // [queries] for the caller's use, this warp's or another's.
  FASA_DEVICE float* maxima() const { return maxima(simt::warp()); }
  FASA_DEVICE float* maxima(int warp) const {
    return memory_.mine + (warp - simt::warp()) * memory_.layout.warp_floats() +
           memory_.layout.maxima_at();
  }
  FASA_DEVICE int queries() const { return memory_.layout.queries; }
  // Number of warps that score; the others have no memory for it.
  FASA_DEVICE int warps() const { return memory_.layout.warps; }

  // Called by the whole warp. `block`: the slice block of a sealed page; other pages are read from
  // the tail.
  FASA_DEVICE void score(int page, const std::byte* block) const {
    const SliceFormat& format = memory_.format;
    simt::sync_warp();  // the last page's scores have been read
    if (page >= sealed_) {
      FloatScorer(memory_).score(tail_, format.tail().dtype);
    } else if (!is_coded(format.dtype)) {
      FloatScorer(memory_).score(block + slice_offset_, format.dtype);
    } else {
      const float base = reinterpret_cast<const float*>(block)[base_at_];
      const std::byte* codes = block + slice_offset_;
      CodeScorer(memory_).score(codes, base);
      for (int token = 0; spoilt_ >> token != 0; ++token) {
        if ((spoilt_ >> token & 1) == 0) continue;
        CodeScorer(memory_).score_one_by_one(codes, base, token * group_, group_);
      }
    }
    simt::sync_warp();
    if (slopes_ != nullptr) add_slopes(page);
    if (score_cap_ > 0) cap_scores();
  }

  // Called by the whole warp, as early as a page that it will score is known; null: the tail.
  FASA_DEVICE void prefetch(const std::byte* block) const {
    constexpr int kLine = 128;
    if (block == nullptr) return;
    const int64_t bytes = memory_.format.page_bytes();
    for (int64_t at = simt::lane() * kLine; at < bytes; at += simt::kWarpThreads * kLine) {
      simt::prefetch(block + slice_offset_ + at);
    }
  }

  // A sealed page's block; null for the tail.
  FASA_DEVICE const std::byte* block_of(int page) const {
    return page < sealed_ ? sequence_.slice_blocks[page] : nullptr;
  }

 private:
  FASA_DEVICE void add_slopes(int page) const {
    const int nearest = page * kPageTokens - (sequence_.end() - 1);
    for (int i = simt::lane(); i < queries() * kPageTokens; i += simt::kWarpThreads) {
      const int query = i / kPageTokens;
      const auto distance = static_cast<float>(nearest - query / group_ + i % kPageTokens);
      float& score = memory_.scores(query)[i % kPageTokens];
      score = simt::fused(slopes_[query % group_], distance, score);
    }
    simt::sync_warp();
  }

  FASA_DEVICE void cap_scores() const {
    for (int i = simt::lane(); i < queries() * kPageTokens; i += simt::kWarpThreads) {
      float& score = memory_.scores(i / kPageTokens)[i % kPageTokens];
      score = soft_capped(score, score_cap_);
    }
    simt::sync_warp();
  }

  const SequenceDesc& sequence_;  // the first token's
  const int group_;
  const ScorerMemory memory_;
  const int64_t slice_offset_;
  const int64_t base_at_;
  const std::byte* const tail_;
  const int sealed_;
  const float* const slopes_;  // [group], null = none
  const float score_cap_;      // 0 = none
  uint32_t spoilt_ = 0;
};

}  // namespace fasa::cuda
