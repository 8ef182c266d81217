// A select's last kernel (select_inl.h), for heads whose candidates do not determine the set.
#pragma once

#include "kernels/cuda/select_kernel_inl.h"
#include "kernels/cuda/select_sets_inl.h"

namespace fasa::cuda {

struct RescanKernel : SelectKernel {
  static constexpr const char* kName = "select rescan";
  static constexpr int kResidentBlocks = 2;  // scores in several places take more registers

  FASA_DEVICE void operator()() const {
    const SelectHead head(params, scratch, scorers);
    if (!head.scores() || head.lists().state->uncertain == 0) return;
    const PageScorer scorer = head.scorer();
    head.load_maxima(rank().maxima);
    collect(head, scorer);
    if (!head.last_block(&head.lists().state->rescanned, &rank().found_bin)) return;
    const SelectLists& lists = head.lists();
    const int32_t asked = simt::load_fresh(&lists.state->rescan_candidates);
    const auto wanted = static_cast<uint32_t>(head.plan().ranked());
    if (asked >= 0 && asked <= lists.capacity) {
      const EachOfList each = {lists, asked};
      SetWriter{head, rank()}.write(key_of_rank(rank(), wanted, each), each);
    } else {
      const EachOfPages each = {head, scorer, rank().maxima};
      SetWriter{head, rank()}.write(key_of_rank(rank(), wanted, each), each);
    }
    score_low_bit(head, scorer);
  }

 private:
  // All competing tokens, scored by this block; the whole context if no range is given.
  struct EachOfPages {
    const SelectHead& head;
    const PageScorer& scorer;
    const float* maxima;

    template <typename Visit>
    FASA_DEVICE void operator()(const Visit& visit) const {
      (*this)(visit, head.plan().first, head.plan().end);
    }
    template <typename Visit>
    FASA_DEVICE void operator()(const Visit& visit, int first, int end) const {
      visit_pages(scorer, first / kPageTokens, (end - 1) / kPageTokens + 1, 0, 1,
                  [&](int page, const float* scores) {
                    for (int t = simt::lane(); t < kPageTokens; t += simt::kWarpThreads) {
                      const int position = page * kPageTokens + t;
                      if (!head.competes(position)) continue;
                      visit(key_at(head, maxima, scores + t), [&] { return position; });
                    }
                  });
    }
  };

  FASA_DEVICE static uint32_t key_at(const SelectHead& head, const float* maxima,
                                     const float* scores) {
    int ignored = 0;
    return head.relative_key(
        [&](int h) { return finite_score(scores[h * kScoreStride], &ignored); }, maxima);
  }

  FASA_DEVICE void collect(const SelectHead& head, const PageScorer& scorer) const {
    const SelectLists& lists = head.lists();
    const uint32_t floor = lists.state->floor;
    visit_pages(scorer, head.first_page(), head.end_page(), simt::block_x(), simt::grid_x(),
                [&](int page, const float* scores) {
                  for (int t = simt::lane(); t < kPageTokens; t += simt::kWarpThreads) {
                    const int position = page * kPageTokens + t;
                    uint32_t key = 0;
                    if (head.competes(position)) key = key_at(head, rank().maxima, scores + t);
                    add(lists, position, key, key != 0 && key >= floor);
                  }
                });
  }

  FASA_DEVICE static void add(const SelectLists& lists, int position, uint32_t key, bool taken) {
    const uint32_t kept = simt::ballot(taken);
    if (kept == 0) return;
    int32_t first = 0;
    if (simt::lane() == 0) {
      first = simt::atomic_add(&lists.state->rescan_candidates, simt::count_bits(kept));
    }
    const int64_t at =
        int64_t{simt::shuffle(first, 0)} + simt::count_bits(kept & simt::lower_lanes());
    if (!taken || at >= lists.capacity) return;
    lists.positions[at] = position;
    lists.keys[at] = key;
  }
};

}  // namespace fasa::cuda
