// A select's second pass (select_inl.h): every page is scored; what survives is ranked.
#pragma once

#include "kernels/cuda/select_kernel_inl.h"
#include "kernels/cuda/select_sets_inl.h"

namespace fasa::cuda {

struct ScanKernel : SelectKernel {
  static constexpr const char* kName = "select scan";

  FASA_DEVICE void operator()() const {
    const SelectHead head(params, scratch, scorers);
    if (!head.scores()) return take_all(head);
    scan(head);
    if (head.last_block(&head.lists().state->scanned, &rank().found_bin)) finish(head);
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
      head.set_near_size(0);
    }
  }

  FASA_DEVICE void scan(const SelectHead& head) const {
    const PageScorer scorer = head.scorer();
    const bool keeps_all = head.stride() == 0;
    const int64_t pages = head.pages();
    const int begin =
        head.first_page() + static_cast<int>(pages * simt::block_x() / simt::grid_x());
    const int end =
        head.first_page() + static_cast<int>(pages * (simt::block_x() + 1) / simt::grid_x());
    int nans = 0;
    visit_pages(scorer, begin, end, 0, 1, [&](int page, const float* scores) {
      for (int t = simt::lane(); t < kPageTokens; t += simt::kWarpThreads) {
        keep(head, page * kPageTokens + t, scores + t, keeps_all, &nans);
      }
    });
    nans = simt::warp_sum(nans);
    if (nans > 0 && simt::lane() == 0 && params.counters != nullptr) {
      simt::atomic_add(&params.counters->nan_scores, static_cast<uint64_t>(nans));
    }
  }

  // The whole warp, each lane with a token of its own; `scores`: of head h at h * kScoreStride.
  FASA_DEVICE void keep(const SelectHead& head, int position, const float* scores, bool keeps_all,
                        int* nans) const {
    const SelectLists& lists = head.lists();
    const bool visible = head.visible(position);
    bool survives = visible && keeps_all;
    for (int h = 0; h < head.group() && visible; ++h) {
      const float score = finite_score(scores[h * kScoreStride], nans);
      survives = survives || (!keeps_all && score >= lists.bounds[h]);
    }
    const uint32_t kept = simt::ballot(survives);
    if (kept == 0) return;
    int32_t first = 0;
    if (simt::lane() == 0) {
      first = simt::atomic_add(&lists.state->survivors, simt::count_bits(kept));
    }
    const int64_t at =
        int64_t{simt::shuffle(first, 0)} + simt::count_bits(kept & simt::lower_lanes());
    if (!survives) return;
    int ignored = 0;
    const auto score = [&](int h) { return finite_score(scores[h * kScoreStride], &ignored); };
    if (at < lists.capacity) {
      lists.positions[at] = position;
      head.store_scores(lists.raw, at, score);
    } else {
      for (int h = 0; h < head.group(); ++h) {
        simt::atomic_max(lists.maxima + h, key_of(score(h)));
      }
    }
  }

  FASA_DEVICE void finish(const SelectHead& head) const {
    const SelectLists& lists = head.lists();
    const int32_t asked = simt::load_fresh(&lists.state->survivors);
    // A count that passed the largest int comes back negative.
    const bool overflown = asked < 0 || asked > lists.capacity;
    const int32_t count = overflown ? lists.capacity : asked;
    raise_maxima(head, count);
    head.load_maxima(rank().maxima);
    const int32_t competing = make_keys(head, count);
    RankedKey last = {0, 0};
    const int32_t wanted = head.plan().ranked();
    if (competing >= wanted) {
      last = key_of_rank(rank(), static_cast<uint32_t>(wanted), EachOfList{lists, count});
    }
    if (overflown || last.key <= greatest_lost_key(head, rank().maxima)) {
      if (simt::thread_index() == 0) {
        lists.state->floor = last.key;
        lists.state->uncertain = 1;
      }
      return;
    }
    SetWriter{head, rank()}.write(last, EachOfList{lists, count});
    if (head.plan().near > 0) copy_near_scores(head, count, last.key);
  }

  FASA_DEVICE static void raise_maxima(const SelectHead& head, int32_t count) {
    const SelectLists& lists = head.lists();
    constexpr int kAhead = SelectHead::kAhead;
    for (int h = 0; h < head.group(); h += 4) {
      float largest[4] = {-infinity(), -infinity(), -infinity(), -infinity()};
      for (int32_t first = simt::thread_index(); first < count; first += kAhead * kThreads) {
        SelectHead::Four four[kAhead];
        FASA_UNROLL
        for (int a = 0; a < kAhead; ++a) {
          const int32_t i = first + a * kThreads;
          four[a] = head.four_scores(lists.raw, i < count ? i : first, h);
        }
        FASA_UNROLL
        for (int a = 0; a < kAhead; ++a) {
          FASA_UNROLL
          for (int j = 0; j < 4; ++j) {
            largest[j] = four[a].of[j] > largest[j] ? four[a].of[j] : largest[j];
          }
        }
      }
      FASA_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float of_warp = simt::warp_max(largest[j]);
        if (simt::lane() == 0 && h + j < head.group()) {
          simt::atomic_max(lists.maxima + h + j, key_of(of_warp));
        }
      }
    }
    simt::fence();
    simt::sync_block();
  }

  // 0 for what does not compete. Returns how many do.
  FASA_DEVICE int32_t make_keys(const SelectHead& head, int32_t count) const {
    const SelectLists& lists = head.lists();
    if (simt::thread_index() == 0) rank().found_rank = 0;
    simt::sync_block();
    constexpr int kAhead = SelectHead::kAhead;
    uint32_t mine = 0;
    for (int32_t first = simt::thread_index(); first < count; first += kAhead * kThreads) {
      int32_t positions[kAhead];
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int32_t i = first + a * kThreads;
        positions[a] = simt::load_fresh(lists.positions + (i < count ? i : first));
      }
      uint32_t keys[kAhead];
      head.relative_keys(lists.raw, first, count, rank().maxima, keys);
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int32_t i = first + a * kThreads;
        if (i >= count) break;
        const bool competes = head.competes(positions[a]);
        lists.keys[i] = competes ? keys[a] : 0;
        mine += competes ? 1 : 0;
      }
    }
    if (mine > 0) simt::atomic_add(&rank().found_rank, mine);
    simt::sync_block();
    const auto competing = static_cast<int32_t>(rank().found_rank);
    simt::sync_block();
    return competing;
  }

  // No token that did not survive has a greater key.
  FASA_DEVICE static uint32_t greatest_lost_key(const SelectHead& head, const float* maxima) {
    if (head.stride() == 0) return 0;
    uint32_t greatest = 0;
    for (int h = 0; h < head.group(); ++h) {
      const uint32_t key = key_of(head.lists().bounds[h] - maxima[h] + 0.0f);
      greatest = greatest < key ? key : greatest;
    }
    return greatest;
  }
};

}  // namespace fasa::cuda
