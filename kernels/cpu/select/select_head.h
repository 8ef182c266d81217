// Selection for one sequence and KV head, fused with scoring: scores of tokens that cannot be
// selected are never stored.
//
//   sample  a fixed share of the pages is scored and kept: the heads' maxima among them (never
//           above the true ones) and a rank among their relative scores give a bound for each query
//           head
//   scan    one pass over the other pages; tokens with some head at or above its bound survive,
//           with the raw scores of all heads. A new maximum always survives, so the true maxima
//           are known after the pass
//   finish  candidates are compared by max over heads of (raw - true maximum), the best are taken.
//           Certain if the last one taken lies above what any other token can reach, max over
//           heads of (bound - true maximum); f32 subtraction is monotone, so this is exact
//   rescan  otherwise (heads whose maxima the sample missed; more candidates than room): a second
//           pass with the true maxima, from the best bound known, into buffers that are pruned
//           exactly when full: no part of a head holds more of its set than its own best
//
// The low-bit set and the runners-up follow in the same order, so everything is done for all
// together: they are the best plan.ranked() tokens, of which the set is the best `need`.
//
// A head is one part, or several over page ranges that other threads scan concurrently;
// select_range.h drives them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/select/key_rank.h"
#include "kernels/cpu/select/page_scorer.h"
#include "kernels/select_plan.h"

namespace fasa::cpu {

// Output of one head's low-bit set; null: none.
struct LowBitOut {
  int32_t* positions = nullptr;
  int32_t* size = nullptr;
  float* scores = nullptr;  // query head h starts at h * stride
  int64_t stride = 0;

  static LowBitOut of(const SelectParams& params, int64_t sequence, int kv_head);
};

// Output of one head's runners-up; null: none.
struct RunnersUpOut {
  int32_t* positions = nullptr;
  int32_t* size = nullptr;

  static RunnersUpOut of(const SelectParams& params, int64_t sequence, int kv_head);
};

// What a selection writes beside the set.
struct NextBestOut {
  LowBitOut low_bit;
  RunnersUpOut runners_up;
};

// One head's scores for a low-bit set attended to by page; `scores` null: none.
struct LowBitPagesOut {
  float scale = 1;
  int heads = 0;
  int first_page = 0;
  int64_t capacity = 0;     // pages from one query head to the next
  float* maxima = nullptr;  // of the first query head
  int16_t* scores = nullptr;

  static LowBitPagesOut of(const SelectParams& params, int64_t sequence, int kv_head,
                           const SelectPlan& plan);
  // `scores`: [heads][64], 64-byte aligned.
  void write(const ScoreBodies& bodies, int page, const float* of_page) const;
  // Takes out a set, ascending, after all pages are written.
  void take_out(const ScoreBodies& bodies, const int32_t* set, int32_t size) const;
};

class HeadPart {
 public:
  // Lists the sample among pages [begin_page, end_page), ascending; the same for all heads of a
  // sequence.
  static void list_sample(const SelectPlan& plan, int begin_page, int end_page,
                          std::vector<int>* pages);
  // Pages [begin_page, end_page) of the visible ones, `sampled_pages` of them in the sample.
  // Reserves memory that later calls reuse.
  void begin(const SelectParams& params, int sequence, int kv_head, const ScoreBodies& bodies,
             int begin_page, int end_page, size_t sampled_pages);
  // Then, in ascending order, call sample_page() for the sample and scan_page() for all. `ahead`:
  // PageScorer::ahead() of a page scored soon, or null.
  void sample_page(int page, const std::byte* ahead, PageScratch* scratch);
  void scan_page(int page, const std::byte* ahead, PageScratch* scratch);
  // If HeadSelection::finish() asks for it: call rescan_page() for all pages, in ascending order.
  bool rescans() const { return rescans_; }
  void rescan_page(int page, const std::byte* ahead, PageScratch* scratch);

  const PageScorer& scorer() const { return scorer_; }
  uint64_t bytes_read() const { return scorer_.bytes_read(); }
  uint64_t nan_scores() const { return nan_scores_; }  // each counted once, after the scan

 private:
  friend class HeadSelection;

  struct SampledPage {
    int page;
    uint64_t visible;
    bool ranked;  // false: only for the maxima (first and newest pages)
  };
  bool keeps_everything() const { return stride_ == 0; }
  float* sample_scores(size_t index) {
    return arrays_.samples.data() + index * static_cast<size_t>(scorer_.heads()) * kPageTokens;
  }
  uint64_t competing(int page) const;
  void take(const float* scores, uint64_t mask, int page);
  // From here on only keys of at least `floor` matter, relative to the head's true maxima.
  void begin_rescan(std::span<const float> maxima, int32_t floor);
  void raise_floor(int32_t floor);
  void prune();
  void find_keys();
  void find_competing();

  const ScoreBodies* bodies_ = nullptr;
  CacheLayout layout_;
  SelectPlan plan_;
  PageScorer scorer_;
  int begin_page_ = 0;
  int end_page_ = 0;
  int stride_ = 0;  // of the ranked sample pages; 0: every token is a candidate
  std::vector<SampledPage> sampled_;
  size_t next_sample_ = 0;     // next sampled page in the scan
  std::vector<float> bounds_;  // [heads]
  // [heads], over all scored tokens of the part; after the scan, over the whole head.
  std::vector<float> maxima_;
  std::vector<float> head_maxima_;  // [heads], whole head; only in its first part
  Candidates candidates_ = {};
  bool overflow_ = false;
  bool rescans_ = false;
  bool has_floor_ = false;  // for a rescan
  uint64_t nan_scores_ = 0;
  struct Competing {
    int32_t first = 0;  // candidates [first, end) compete
    int32_t end = 0;
    int32_t first_gathered = 0;  // among the head's contenders
  } competing_;
  LowBitPagesOut low_bit_pages_;
  struct Arrays {
    ScratchArray<float> samples;
    ScratchArray<int32_t> sample_keys;
    ScratchArray<int32_t> positions;
    ScratchArray<float> raw;
    ScratchArray<int32_t> keys;
  } arrays_;
};

// The parts of one head, in page order.
class HeadSelection {
 public:
  explicit HeadSelection(std::span<HeadPart* const> parts) : parts_(parts) {}

  // Call after every part's sample.
  void set_bounds();
  // Call after every part's scan: writes the set, ascending, and the others. Returns the set's
  // size, or nothing if every part must be rescanned first.
  std::optional<int32_t> finish(int32_t* set, const NextBestOut& others);
  bool rescans() const { return front().rescans(); }
  int32_t finish_rescan(int32_t* set, const NextBestOut& others);

 private:
  HeadPart& front() const { return *parts_.front(); }
  std::vector<float>& gather_maxima();
  int32_t count_at_least(int32_t key) const;
  int32_t greatest_lost_key() const;
  void find_keys();
  // `least`: a key reached by at least as many tokens as are ranked, and by none that was lost.
  int32_t gather(int32_t least) const;
  RankCut cut_of(int32_t rank, int32_t gathered) const;
  template <typename Visit>
  void visit_contenders(RankCut cut, int32_t gathered, const Visit& visit) const;
  int32_t write(int32_t least, int32_t* set, const NextBestOut& others) const;
  void write_runners_up(RankCut in_set, int32_t gathered, const RunnersUpOut& out) const;

  std::span<HeadPart* const> parts_;
};

// Writes the set of a sequence that takes every visible position.
int32_t write_all(const SelectPlan& plan, int32_t* set);

}  // namespace fasa::cpu
