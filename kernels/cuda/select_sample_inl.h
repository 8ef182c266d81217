// A select's first kernel (select_inl.h): scores of a share of the pages, and each page's maxima.
#pragma once

#include "kernels/cuda/sample_pages_inl.h"
#include "kernels/cuda/select_kernel_inl.h"

namespace fasa::cuda {

struct SampleKernel : SelectKernel {
  static constexpr const char* kName = "select sample";

  // Thread blocks per KV head: enough that each scoring warp gets one page.
  static constexpr int kMaxBlocks =
      (kSamplePages + kMaximaPages - 1) / (kThreads / simt::kWarpThreads) + 1;

  FASA_DEVICE void operator()() const {
    const SelectHead head(params, scratch, scorers);
    if (!head.scores() || head.stride() == 0) return;
    const PageScorer scorer = head.scorer();
    const SamplePages pages = {head};
    const int warps = scorer.warps();
    if (simt::warp() >= warps) return;
    for (int i = simt::block_x() * warps + simt::warp(); i < pages.scored();
         i += simt::grid_x() * warps) {
      const int page = pages.at(i);
      scorer.score(page, scorer.block_of(page));
      store_maxima(head, scorer, page, head.lists().page_maxima + i * head.group());
      if (i >= pages.ranked()) continue;
      for (int t = simt::lane(); t < kPageTokens; t += simt::kWarpThreads) {
        head.store_scores(head.lists().sample, i * kPageTokens + t,
                          [&](int h) { return score_of(head, scorer, page, h, t); });
      }
    }
  }

 private:
  FASA_DEVICE static float score_of(const SelectHead& head, const PageScorer& scorer, int page,
                                    int h, int t) {
    int ignored = 0;
    return head.visible(page * kPageTokens + t)
               ? finite_score(scorer.scores()[h * kScoreStride + t], &ignored)
               : -infinity();
  }

  // Writes a page's maxima to `out` [group].
  FASA_DEVICE static void store_maxima(const SelectHead& head, const PageScorer& scorer, int page,
                                       float* out) {
    for (int h = 0; h < head.group(); ++h) {
      float largest = -infinity();
      for (int t = simt::lane(); t < kPageTokens; t += simt::kWarpThreads) {
        const float of = score_of(head, scorer, page, h, t);
        largest = of > largest ? of : largest;
      }
      largest = simt::warp_max(largest);
      if (simt::lane() == 0) out[h] = largest;
    }
  }
};

}  // namespace fasa::cuda
