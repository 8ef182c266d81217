// A select's second kernel (select_inl.h): finds a head's candidates, ranks them and writes the
// sets, by one large block.
#pragma once

#include "kernels/cuda/select/select_kernel_inl.h"
#include "kernels/cuda/select/select_sets_inl.h"

namespace fasa::cuda {

struct FinishKernel : SelectKernel {
  static constexpr const char* kName = "select finish";
  static constexpr int kThreads = 512;
  static constexpr int kResidentBlocks = 1;

  FASA_DEVICE void operator()() const {
    const SelectHead head(params, scratch);
    if (!head.scores()) return;
    BlockRank& rank = simt::shared<BlockRank>();
    head.load_maxima(score_blocks, rank.maxima);
    const uint32_t floor = last_run(head, rank);
    const int32_t found = collect(head, rank, floor);
    const EachCandidate each = {head, rank.maxima, found};
    SetWriter{head, rank}.write(
        key_of_rank(rank, static_cast<uint32_t>(head.plan().ranked()), each), each);
  }

 private:
  // Runs with competing tokens, from the first visible page's on.
  struct Runs {
    int begin;
    int end;
  };
  FASA_DEVICE static Runs runs_of(const SelectHead& head) {
    const int first = head.first_page() * kPageTokens;
    return {(head.plan().sinks_end - first) / kRunTokens,
            (head.plan().recent_begin - first + kRunTokens - 1) / kRunTokens};
  }

  // Keys of the block's runs, as it has stored them; a thread visits its own.
  struct EachOfRuns {
    static constexpr int kAhead = 8;

    const uint32_t* keys;
    Runs runs;

    FASA_DEVICE void load(int first, uint32_t (&of)[kAhead]) const {
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int run = first + a * kThreads;
        of[a] = keys[run < runs.end ? run : first];
      }
    }
    template <typename Visit>
    FASA_DEVICE void operator()(const Visit& visit) const {
      for (int first = runs.begin + simt::thread_index(); first < runs.end;
           first += kAhead * kThreads) {
        uint32_t of[kAhead];
        load(first, of);
        FASA_UNROLL
        for (int a = 0; a < kAhead; ++a) {
          if (first + a * kThreads < runs.end) visit(of[a], [] { return 0; });
        }
      }
    }
    // Bits of the runs first, first + kThreads, ... that reach a key.
    FASA_DEVICE uint32_t reached(int first, uint32_t floor) const {
      uint32_t of[kAhead];
      load(first, of);
      uint32_t bits = 0;
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        if (first + a * kThreads < runs.end && of[a] >= floor) bits |= 1u << a;
      }
      return bits;
    }
  };

  // Stores the runs' keys. Returns a key that every token to be ranked reaches (select_inl.h).
  FASA_DEVICE static uint32_t last_run(const SelectHead& head, BlockRank& rank) {
    const SelectLists& lists = head.lists();
    const Runs runs = runs_of(head);
    constexpr int kAhead = SelectHead::kAhead;
    for (int first = runs.begin + simt::thread_index(); first < runs.end;
         first += kAhead * kThreads) {
      uint32_t keys[kAhead];
      head.relative_keys(lists.run_maxima, first, runs.end, rank.maxima, keys);
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        if (first + a * kThreads < runs.end) lists.run_keys[first + a * kThreads] = keys[a];
      }
    }
    const int wanted = head.plan().ranked();
    if (wanted >= runs.end - runs.begin) return 0;
    constexpr int kMinBit = 10;  // the lower bits would let less than a thousandth fewer remain
    return key_of_rank(rank, static_cast<uint32_t>(wanted), EachOfRuns{lists.run_keys, runs},
                       kMinBit)
        .key;
  }

  // Lists the competing tokens of runs that reach the key; returns their number, of which at most
  // the capacity is stored. A thread visits the runs whose keys it has stored.
  FASA_DEVICE static int32_t collect(const SelectHead& head, BlockRank& rank, uint32_t floor) {
    if (simt::thread_index() == 0) rank.found_rank = 0;
    simt::sync_block();
    const Runs runs = runs_of(head);
    constexpr int kAhead = EachOfRuns::kAhead;
    for (int first = runs.begin + simt::thread_index(); first < runs.end;
         first += kAhead * kThreads) {
      uint32_t reached = EachOfRuns{head.lists().run_keys, runs}.reached(first, floor);
      for (; reached != 0; reached &= reached - 1) {
        collect_run(head, rank, first + simt::lowest_bit(reached) * kThreads, floor);
      }
    }
    simt::sync_block();
    const auto found = static_cast<int32_t>(rank.found_rank);
    simt::sync_block();
    return found;
  }
  FASA_DEVICE static void collect_run(const SelectHead& head, BlockRank& rank, int run,
                                      uint32_t floor) {
    const SelectLists& lists = head.lists();
    uint32_t keys[kRunTokens];
    head.relative_keys<kRunTokens>(
        lists.raw, [run](int t) { return run * kRunTokens + t; }, rank.maxima, keys);
    FASA_UNROLL
    for (int t = 0; t < kRunTokens; ++t) {
      const int position = head.first_page() * kPageTokens + run * kRunTokens + t;
      if (keys[t] < floor || !head.competes(position)) continue;
      const uint32_t at = simt::atomic_add(&rank.found_rank, 1u);
      if (at >= static_cast<uint32_t>(lists.capacity)) continue;
      lists.positions[at] = position;
      lists.keys[at] = keys[t];
    }
  }

  // The listed candidates; all competing tokens, by their scores, if the list is too short. One
  // type for both: the ranking is long code.
  struct EachCandidate {
    const SelectHead& head;
    const float* maxima;
    int32_t found;

    FASA_DEVICE bool listed() const { return found <= head.lists().capacity; }
    template <typename Visit>
    FASA_DEVICE void operator()(const Visit& visit) const {
      (*this)(visit, head.plan().first, head.plan().end);
    }
    // `begin` and `end` bound the positions that matter.
    template <typename Visit>
    FASA_DEVICE void operator()(const Visit& visit, int begin, int end) const {
      constexpr int kAhead = SelectHead::kAhead;
      const SelectLists& lists = head.lists();
      const int base = head.first_page() * kPageTokens;
      const int stop = listed() ? found : end - base;
      for (int first = (listed() ? 0 : begin - base) + simt::thread_index(); first < stop;
           first += kAhead * kThreads) {
        uint32_t keys[kAhead];
        if (listed()) {
          FASA_UNROLL
          for (int a = 0; a < kAhead; ++a) {
            const int i = first + a * kThreads;
            keys[a] = simt::load_fresh(lists.keys + (i < stop ? i : first));
          }
        } else {
          head.relative_keys(lists.raw, first, stop, maxima, keys);
        }
        FASA_NO_UNROLL
        for (int a = 0; a < kAhead; ++a) {
          const int i = first + a * kThreads;
          if (i >= stop || !(listed() || head.competes(base + i))) continue;
          const uint32_t key = a == 0 ? keys[0] : a == 1 ? keys[1] : a == 2 ? keys[2] : keys[3];
          visit(key, [&] { return listed() ? simt::load_fresh(lists.positions + i) : base + i; });
        }
      }
    }
  };
};

}  // namespace fasa::cuda
