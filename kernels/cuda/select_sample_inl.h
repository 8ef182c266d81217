// A select's first pass (select_inl.h): bounds for each query head, by a share of the pages.
#pragma once

#include "kernels/cuda/select_kernel_inl.h"

namespace fasa::cuda {

struct SampleKernel : SelectKernel {
  static constexpr const char* kName = "select sample";

  FASA_DEVICE void operator()() const {
    const SelectHead head(params, scratch, scorers);
    if (!head.scores() || head.stride() == 0) return;
    score_sample(head);
    if (head.last_block(&head.lists().state->sampled, &rank().found_bin)) set_bounds(head);
  }

 private:
  // The ranked pages; the first one and the newest two are no sample, but their maxima count: the
  // sinks and the newest tokens tend to have them.
  FASA_DEVICE static int ranked_pages(const SelectHead& head) {
    return (head.pages() - head.stride() / 2 + head.stride() - 1) / head.stride();
  }
  FASA_DEVICE static int page_of(const SelectHead& head, int i) {
    const int ranked = ranked_pages(head);
    if (i < ranked) return head.first_page() + head.stride() / 2 + i * head.stride();
    return i == ranked ? head.first_page() : head.end_page() - (i - ranked);
  }

  FASA_DEVICE void score_sample(const SelectHead& head) const {
    const PageScorer scorer = head.scorer();
    const int ranked = ranked_pages(head);
    const int warps = scorer.warps();
    if (simt::warp() >= warps) return;
    for (int i = simt::block_x() * warps + simt::warp(); i < ranked + 3;
         i += simt::grid_x() * warps) {
      const int page = page_of(head, i);
      scorer.score(page, scorer.block_of(page));
      const auto score = [&](int h, int t) {
        int nans = 0;
        return head.visible(page * kPageTokens + t)
                   ? finite_score(scorer.scores()[h * kScoreStride + t], &nans)
                   : -infinity();
      };
      for (int h = 0; h < head.group(); ++h) {
        float largest = -infinity();
        for (int t = simt::lane(); t < kPageTokens; t += simt::kWarpThreads) {
          const float of = score(h, t);
          largest = of > largest ? of : largest;
        }
        largest = simt::warp_max(largest);
        if (simt::lane() == 0) simt::atomic_max(head.lists().maxima + h, key_of(largest));
      }
      if (i >= ranked) continue;
      for (int t = simt::lane(); t < kPageTokens; t += simt::kWarpThreads) {
        head.store_scores(head.lists().sample, i * kPageTokens + t,
                          [&](int h) { return score(h, t); });
      }
    }
  }

  // Several times the rank that the budget has in a sample, and its noise, so that the bounds hold
  // although the sample's maxima are too low, unlike for different heads; never so many that half
  // of the room would not do.
  FASA_DEVICE static int32_t sample_rank(const SelectHead& head, int32_t counted) {
    const float competing = static_cast<float>(head.competing());
    const float need = static_cast<float>(head.plan().ranked());
    const float share = static_cast<float>(counted) / competing;
    float factor = 0.08f * competing / need;
    factor = factor < 4 ? 4 : factor > 12 ? 12 : factor;
    const float expected = share * need;
    const float most = 0.6f * share * static_cast<float>(head.lists().capacity);
    float rank = factor * expected + 3 * simt::square_root(expected) + 4;
    rank = rank < most ? rank : most;
    return rank < 1 ? 1 : static_cast<int32_t>(rank);
  }

  FASA_DEVICE void set_bounds(const SelectHead& head) const {
    const SelectLists& lists = head.lists();
    const int tokens = ranked_pages(head) * kPageTokens;
    const int stride = head.stride();
    const int first_page = head.first_page() + stride / 2;
    if (simt::thread_index() == 0) rank().found_rank = 0;
    head.load_maxima(rank().maxima);
    int mine = 0;
    for (int first = simt::thread_index(); first < tokens; first += SelectHead::kAhead * kThreads) {
      uint32_t keys[SelectHead::kAhead];
      head.relative_keys(lists.sample, first, tokens, rank().maxima, keys);
      FASA_UNROLL
      for (int a = 0; a < SelectHead::kAhead; ++a) {
        const int i = first + a * kThreads;
        if (i >= tokens) break;
        const int page = first_page + i / kPageTokens * stride;
        const bool competes = head.competes(page * kPageTokens + i % kPageTokens);
        lists.keys[i] = competes ? keys[a] : 0;
        mine += competes ? 1 : 0;
      }
    }
    if (mine > 0) simt::atomic_add(&rank().found_rank, static_cast<uint32_t>(mine));
    simt::sync_block();
    const auto counted = static_cast<int32_t>(rank().found_rank);
    simt::sync_block();
    const int32_t wanted = sample_rank(head, counted);
    uint32_t threshold = 0;
    if (wanted <= counted) {
      const auto each = [&](const auto& visit) {
        for (int i = simt::thread_index(); i < tokens; i += kThreads) {
          if (lists.keys[i] != 0) visit(lists.keys[i], [] { return 0; });
        }
      };
      constexpr int kMinBit = 10;  // what lies lower lets less than a thousandth more survive
      threshold = key_of_rank(rank(), static_cast<uint32_t>(wanted), each, kMinBit).key;
    }
    for (int h = simt::thread_index(); h < head.group(); h += kThreads) {
      // Below the lowest float, or of a key that is no number: nothing is left out but -inf.
      const float bound = value_of(threshold) + rank().maxima[h];
      lists.bounds[h] = bound >= kLowestFloat ? bound : kLowestFloat;
    }
  }
};

}  // namespace fasa::cuda
