// A select's third kernel (select_inl.h): scores every page and stores the tokens that survive.
#pragma once

#include "kernels/cuda/select_kernel_inl.h"

namespace fasa::cuda {

struct ScanKernel : SelectKernel {
  static constexpr const char* kName = "select scan";

  FASA_DEVICE void operator()() const {
    const SelectHead head(params, scratch, scorers);
    if (!head.scores()) return take_all(head);
    scan(head);
  }

 private:
  FASA_DEVICE static void take_all(const SelectHead& head) {
    const int count = head.decodes() ? head.plan().visible() : 0;
    for (int i = simt::block_x() * kThreads + simt::thread_index(); i < count;
         i += simt::grid_x() * kThreads) {
      head.set()[i] = head.plan().first + i;
    }
    if (simt::block_x() == 0 && simt::thread_index() == 0) {
      head.selected_size() = count;
      head.set_low_bit_size(0);
      head.set_runners_up_size(0);
      head.set_no_pages();
    }
  }

  FASA_DEVICE void scan(const SelectHead& head) const {
    const PageScorer scorer = head.scorer();
    const int64_t pages = head.pages();
    const int begin =
        head.first_page() + static_cast<int>(pages * simt::block_x() / simt::grid_x());
    const int end =
        head.first_page() + static_cast<int>(pages * (simt::block_x() + 1) / simt::grid_x());
    int nans = 0;
    visit_pages(scorer, begin, end, 0, 1, [&](int page, const float* scores) {
      for (int t = simt::lane(); t < kPageTokens; t += simt::kWarpThreads) {
        keep(head, page * kPageTokens + t, scores + t, &nans);
      }
      head.write_page_scores(page, [&](int h, int t) {
        int ignored = 0;
        return head.visible(page * kPageTokens + t)
                   ? finite_score(scores[h * kScoreStride + t], &ignored)
                   : -infinity();
      });
    });
    nans = simt::warp_sum(nans);
    if (nans > 0 && simt::lane() == 0 && params.counters != nullptr) {
      simt::atomic_add(&params.counters->nan_scores, static_cast<uint64_t>(nans));
    }
  }

  // Called by the whole warp, each lane with its own token; `scores`: those of head h at h *
  // kScoreStride.
  FASA_DEVICE void keep(const SelectHead& head, int position, const float* scores,
                        int* nans) const {
    const SelectLists& lists = head.lists();
    const bool visible = head.visible(position);
    bool survives = false;
    bool is_maximum = false;  // a new maximum, as far as this thread knows
    for (int h = 0; h < head.group() && visible; ++h) {
      const float score = finite_score(scores[h * kScoreStride], nans);
      const SelectBound bound = lists.bounds[h];
      survives = survives || score >= bound.least;
      is_maximum = is_maximum || score > bound.sampled;
    }
    const uint32_t kept = simt::ballot(survives);
    if (kept == 0) return;
    int32_t first = 0;
    if (simt::lane() == 0) {
      first = simt::atomic_add(&lists.state->candidates, simt::count_bits(kept));
    }
    const int64_t at =
        int64_t{simt::shuffle(first, 0)} + simt::count_bits(kept & simt::lower_lanes());
    int ignored = 0;
    const auto score = [&](int h) { return finite_score(scores[h * kScoreStride], &ignored); };
    if (simt::ballot(is_maximum) != 0) raise_maxima(head, survives, score);
    if (!survives || at >= lists.capacity) return;
    lists.positions[at] = position;
    head.store_scores(lists.raw, at, score);
  }

  // Called by the whole warp: raises the heads' maxima to the scores of its surviving tokens.
  template <typename Score>
  FASA_DEVICE static void raise_maxima(const SelectHead& head, bool survives, const Score& score) {
    for (int h = 0; h < head.group(); ++h) {
      const uint32_t largest = simt::warp_max(survives ? key_of(score(h)) : 0);
      if (simt::lane() == 0) simt::atomic_max(head.lists().maxima + h, largest);
    }
  }
};

}  // namespace fasa::cuda
