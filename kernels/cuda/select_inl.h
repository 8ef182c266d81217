// TIP score + select over many blocks, exact, in one read of the slices; as kernels/cpu's:
//
//   sample  a share of the pages is scored: the heads' maxima among them (never above the true
//           ones) and a rank among their relative scores give a bound for each query head
//   scan    all pages are scored; tokens with some head at or above its bound survive, with the raw
//           scores of all heads. A new maximum always survives, so the true maxima are known then.
//           The head's last block compares survivors by max over heads of (raw - true maximum).
//           Certain if the last one taken lies above what any other token can reach, max over
//           heads of (bound - true maximum): f32 subtraction is monotone
//   rescan  where it is not (the sample missed some head's maximum by much): pages are scored again
//           with the true maxima; what reaches the last survivor that would have been taken is
//           ranked. Where even that is more than there is room for (rows of equal values), the
//           head's last block ranks by reading the slices three more times. Ends at once otherwise
//
// Blocks of a head share its pages; how many there are does not depend on the context, so the same
// launch serves any length. Nothing is dropped: what finds no room is counted, and read again.
#pragma once

#include "kernels/cuda/near_select_inl.h"

namespace fasa::cuda {

struct SelectKernel {
  static constexpr int kThreads = kSelectThreads;

  // Of a multiprocessor: the memory's latency takes about 24 warps. Bounds registers to 80, for
  // which the scan spills 120 bytes on sm_90.
  static constexpr int kResidentBlocks = 3;

  SelectParams params;
  SelectScratch scratch;
  ScorerLayout scorers;
  // In shared memory: in place of the scorers', or behind it where pages are read while ranking.
  int64_t rank_at;

  // What a launch asks for at most: every GPU of 8.0 and newer, before that of 7.5.
  static constexpr int64_t most_shared(int compute_capability) {
    return int64_t{compute_capability < 80 ? 64 : 99} << 10;
  }
  static constexpr ScorerLayout scorer_layout(const SelectParams& params, int compute_capability) {
    const ScorerLayout whole = {params.step.layout.group, params.step.layout.slice.padded_dims(),
                                kThreads / simt::kWarpThreads};
    return whole.within(most_shared(compute_capability) - int64_t{sizeof(BlockRank)});
  }
  FASA_DEVICE BlockRank& rank() const {
    return *reinterpret_cast<BlockRank*>(simt::shared_memory() + rank_at);
  }
};

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
      last = key_of_rank(rank(), static_cast<uint32_t>(wanted), each_of(lists, count));
    }
    if (overflown || last.key <= greatest_lost_key(head, rank().maxima)) {
      if (simt::thread_index() == 0) {
        lists.state->floor = last.key;
        lists.state->uncertain = 1;
      }
      return;
    }
    write_sets(head, last, each_of(lists, count));
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

 public:
  // The keys of a list, each thread visiting those that it wrote itself.
  struct EachOfList {
    const SelectLists& lists;
    int32_t count;

    template <typename Visit>
    FASA_DEVICE void operator()(const Visit& visit, int = 0, int = 0) const {
      for (int32_t i = simt::thread_index(); i < count; i += kThreads) {
        const uint32_t key = lists.keys[i];
        if (key != 0) visit(key, [&] { return simt::load_fresh(lists.positions + i); });
      }
    }
  };
  FASA_DEVICE static EachOfList each_of(const SelectLists& lists, int32_t count) {
    return {lists, count};
  }

  // Set and near set, but for its scores; `last` is the last key of both.
  template <typename Each>
  FASA_DEVICE void write_sets(const SelectHead& head, RankedKey last, const Each& each) const {
    const SelectPlan& plan = head.plan();
    if (plan.near == 0) {
      if (simt::thread_index() == 0) head.set_near_size(0);
      return write_set(head, last, each);
    }
    write_set(head, key_of_rank(rank(), static_cast<uint32_t>(plan.need), each), each);
    int32_t* both = head.lists().both;
    emit(head, last, plan.ranked(), each, both);
    simt::sync_block();
    write_near_positions(head, both);
  }

  // The best `count` of those that compete, ascending.
  template <typename Each>
  FASA_DEVICE void emit(const SelectHead& head, RankedKey last, int32_t count, const Each& each,
                        int32_t* out) const {
    if (count > BlockRank::kSorted || !emit_sorted(rank(), last, count, each, out)) {
      emit_ranked(rank(), last, head.plan().sinks_end, head.plan().recent_begin, each, out);
    }
  }

  template <typename Each>
  FASA_DEVICE void write_set(const SelectHead& head, RankedKey last, const Each& each) const {
    const SelectPlan& plan = head.plan();
    int32_t* out = head.set();
    const int sinks = plan.sinks_end - plan.first;
    const int recent = plan.end - plan.recent_begin;
    for (int i = simt::thread_index(); i < sinks; i += kThreads) out[i] = plan.first + i;
    for (int i = simt::thread_index(); i < recent; i += kThreads) {
      out[sinks + plan.need + i] = plan.recent_begin + i;
    }
    emit(head, last, plan.need, each, out + sinks);
    if (simt::thread_index() == 0) head.selected_size() = plan.budget;
  }
};

struct RescanKernel : ScanKernel {
  static constexpr const char* kName = "select rescan";
  static constexpr int kResidentBlocks = 2;  // scores in several places: more registers

  FASA_DEVICE void operator()() const {
    const SelectHead head(params, scratch, scorers);
    if (!head.scores() || head.lists().state->uncertain == 0) return;
    const PageScorer scorer = head.scorer();
    head.load_maxima(rank().maxima);
    collect(head, scorer);
    if (!head.last_block(&head.lists().state->rescanned, &rank().found_bin)) return;
    const SelectLists& lists = head.lists();
    const int32_t asked = simt::load_fresh(&lists.state->candidates);
    const auto wanted = static_cast<uint32_t>(head.plan().ranked());
    if (asked >= 0 && asked <= lists.capacity) {
      const EachFresh each = {lists, asked};
      write_sets(head, key_of_rank(rank(), wanted, each), each);
    } else {
      const EachOfPages each = {head, scorer, rank().maxima};
      write_sets(head, key_of_rank(rank(), wanted, each), each);
    }
    score_near(head, scorer);
  }

 private:
  // By other blocks' threads.
  struct EachFresh {
    const SelectLists& lists;
    int32_t count;

    template <typename Visit>
    FASA_DEVICE void operator()(const Visit& visit, int = 0, int = 0) const {
      for (int32_t i = simt::thread_index(); i < count; i += kThreads) {
        visit(simt::load_fresh(lists.keys + i),
              [&] { return simt::load_fresh(lists.positions + i); });
      }
    }
  };

  // All tokens that compete, by this block; the whole context where no window is asked for.
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
      first = simt::atomic_add(&lists.state->candidates, simt::count_bits(kept));
    }
    const int64_t at =
        int64_t{simt::shuffle(first, 0)} + simt::count_bits(kept & simt::lower_lanes());
    if (!taken || at >= lists.capacity) return;
    lists.positions[at] = position;
    lists.keys[at] = key;
  }
};

constexpr int kSampleBlocks = 8;  // of a head: two pages a warp
constexpr int kMaxHeadBlocks = 1024;

// All blocks of all heads run at once, where the heads alone are not too many for that.
constexpr int head_blocks(int multiprocessors, int64_t heads) {
  const int64_t blocks = int64_t{SelectKernel::kResidentBlocks} * multiprocessors / heads;
  return static_cast<int>(blocks < 1 ? 1 : blocks < kMaxHeadBlocks ? blocks : kMaxHeadBlocks);
}

template <typename Launcher>
void start(const SelectParams& params, const Launcher& launch) {
  const int kv_heads = params.step.head_count();
  const int64_t heads = int64_t{params.step.count} * kv_heads;
  if (heads == 0) return;
  const SelectScratch scratch = SelectScratch::of(params.step.layout, params.step.count,
                                                  params.selected_capacity + params.near.capacity);
  const ScorerLayout layout = SelectKernel::scorer_layout(params, launch.compute_capability());
  const int64_t scorers = align_up(layout.bytes());
  constexpr int64_t kRank = sizeof(BlockRank);
  simt::Grid grid = {.x = head_blocks(launch.multiprocessors(), heads),
                     .y = kv_heads,
                     .z = params.step.count,
                     .shared_bytes = scorers > kRank ? scorers : kRank};
  simt::Grid sample = grid;
  sample.x = kSampleBlocks;
  simt::Grid rescan = grid;
  rescan.shared_bytes = scorers + kRank;
  launch.zero(params.scratch, scratch.states_bytes());
  launch(SampleKernel{{params, scratch, layout, 0}}, sample);
  launch(ScanKernel{{params, scratch, layout, 0}}, grid);
  launch(RescanKernel{{{params, scratch, layout, scorers}}}, rescan);
}

}  // namespace fasa::cuda
