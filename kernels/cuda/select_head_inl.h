// Shared by the passes of a select (select_inl.h): one block's view of its (sequence, KV head),
// scores made finite, sort keys.
#pragma once

#include "kernels/cuda/block_rank_inl.h"
#include "kernels/cuda/page_scorer_inl.h"
#include "kernels/cuda/select_scratch.h"
#include "kernels/cuda/simt.h"
#include "kernels/select_plan.h"

namespace fasa::cuda {

inline constexpr int kKeepAllTokens = 2048;  // up to this many tokens, all survive
inline constexpr float kLowestFloat = -3.402823466e38f;

FASA_DEVICE float infinity() { return simt::float_of(0x7f800000u); }

// A key of the same order as the float; 0 is below all of them. Not for NaN.
FASA_DEVICE uint32_t key_of(float value) {
  const uint32_t bits = simt::bits_of(value);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
FASA_DEVICE float value_of(uint32_t key) {
  return simt::float_of((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

// A head's part of the scratch memory.
struct SelectLists {
  SelectState* state;
  SelectBound* bounds;
  uint32_t* maxima;
  float* sample;
  float* page_maxima;
  int32_t* positions;
  uint32_t* keys;
  float* raw;
  int32_t* both;
  int capacity;

  FASA_DEVICE static SelectLists of(const SelectScratch& scratch, std::byte* memory, int64_t head) {
    std::byte* state = memory + head * scratch.state_bytes();
    std::byte* lists = memory + scratch.states_bytes() + head * scratch.list_bytes();
    SelectLists found = {};
    found.state = reinterpret_cast<SelectState*>(state);
    found.bounds = reinterpret_cast<SelectBound*>(state + sizeof(SelectState));
    found.maxima = reinterpret_cast<uint32_t*>(found.bounds + scratch.gqa_group);
    found.sample = reinterpret_cast<float*>(lists + scratch.sample_at());
    found.page_maxima = reinterpret_cast<float*>(lists + scratch.page_maxima_at());
    found.positions = reinterpret_cast<int32_t*>(lists + scratch.positions_at());
    found.keys = reinterpret_cast<uint32_t*>(lists + scratch.keys_at());
    found.raw = reinterpret_cast<float*>(lists + scratch.raw_at());
    found.both = reinterpret_cast<int32_t*>(lists + scratch.both_at());
    found.capacity = scratch.capacity;
    return found;
  }
};

// One block's head: its indices, its plan, its lists.
class SelectHead {
 public:
  FASA_DEVICE SelectHead(const SelectParams& params, const SelectScratch& scratch,
                         const ScorerLayout& scorers)
      : params_(params),
        scorers_(scorers),
        kv_head_(params.step.first_head() + simt::block_y()),
        index_(int64_t{simt::block_z()} * params.step.layout.kv_heads + kv_head_),
        sequence_(params.step.sequences[simt::block_z()]),
        plan_(plan_selection(params, sequence_)),
        lists_(SelectLists::of(scratch, params.scratch, index_)) {}

  FASA_DEVICE bool decodes() const { return sequence_.mode == StepMode::kDecode; }
  // Whether any page has to be scored.
  FASA_DEVICE bool scores() const { return decodes() && !plan_.is_dense(); }
  FASA_DEVICE const SelectPlan& plan() const { return plan_; }
  FASA_DEVICE const SelectLists& lists() const { return lists_; }
  FASA_DEVICE const SelectParams& params() const { return params_; }
  FASA_DEVICE const SequenceDesc& sequence() const { return sequence_; }
  FASA_DEVICE int group() const { return params_.step.layout.gqa_group; }
  FASA_DEVICE int32_t* set() const { return params_.sets + index_ * params_.selected_capacity; }
  FASA_DEVICE int32_t& selected_size() const { return params_.selected_sizes[index_]; }

  // For the low-bit set.
  FASA_DEVICE int32_t* low_bit_positions() const {
    return params_.low_bit.positions + index_ * params_.low_bit.capacity;
  }
  FASA_DEVICE void set_low_bit_size(int32_t size) const {
    if (params_.low_bit.capacity > 0) params_.low_bit.sizes[index_] = size;
  }
  FASA_DEVICE int32_t* runners_up() const {
    return params_.runners_up.positions + index_ * params_.runners_up.capacity;
  }
  FASA_DEVICE void set_runners_up_size(int32_t size) const {
    if (params_.runners_up.capacity > 0) params_.runners_up.sizes[index_] = size;
  }
  FASA_DEVICE float& low_bit_score(int head, int32_t i) const {
    return params_.low_bit.scores[(index_ * group() + head) * params_.low_bit.capacity + i];
  }

  // For a low-bit set by page. Called by the whole warp: writes the page's scores, for head h
  // score(h, token).
  template <typename Score>
  FASA_DEVICE void write_page_scores(int page, const Score& score) const {
    const LowBitPages& pages = params_.low_bit_pages;
    if (pages.capacity == 0) return;
    for (int h = 0; h < group(); ++h) {
      constexpr int kMine = kPageTokens / simt::kWarpThreads;
      float mine[kMine];
      float maximum = kLowestFloat;
      FASA_UNROLL
      for (int i = 0; i < kMine; ++i) {
        mine[i] = score(h, simt::lane() * kMine + i);
        maximum = mine[i] > maximum ? mine[i] : maximum;
      }
      maximum = simt::warp_max(maximum);
      const int64_t at = pages.at(index_ * group() + h) + page - first_page();
      if (simt::lane() == 0) {
        pages.maxima[at] = maximum > kLowestFloat ? maximum * pages.scale : -infinity();
      }
      int16_t* const out = pages.scores + at * kPageTokens + simt::lane() * kMine;
      const float units = pages.scale * kScoreUnits;
      FASA_UNROLL
      for (int i = 0; i < kMine; ++i) {
        const float distance = (mine[i] - maximum) * units;
        constexpr float kLowest = kLowestScoreCode;
        constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
        const float rounded = (distance > kLowest ? distance : kLowest) + kRound - kRound;
        out[i] = mine[i] >= kLowestFloat ? static_cast<int16_t>(rounded) : kNoScoreCode;
      }
    }
  }
  // Called by the whole block: takes the set's tokens out. The set must be visible to the block.
  FASA_DEVICE void take_out_set() const {
    const LowBitPages& pages = params_.low_bit_pages;
    if (pages.capacity == 0) return;
    const int32_t size = plan_.budget;
    // A page's tokens in the set, by the thread of the first of them.
    for (int64_t i = simt::thread_index(); i < int64_t{size} * group();
         i += simt::block_threads()) {
      const auto entry = static_cast<int32_t>(i % size);
      const int page = set()[entry] / kPageTokens;
      if (entry > 0 && set()[entry - 1] / kPageTokens == page) continue;
      const int64_t at = pages.at(index_ * group() + i / size) + page - first_page();
      int16_t* const codes = pages.scores + at * kPageTokens;
      for (int32_t j = entry; j < size && set()[j] / kPageTokens == page; ++j) {
        codes[set()[j] % kPageTokens] = kNoScoreCode;
      }
      pages.maxima[at] = lower_maximum(pages.maxima[at], codes);
    }
    if (simt::thread_index() == 0) pages.counts[index_] = plan_.pages();
  }
  // The maximum of the codes' scores, to which the codes are made relative; scores that are too low
  // for a code stay so.
  FASA_DEVICE static float lower_maximum(float maximum, int16_t* codes) {
    int16_t top = kNoScoreCode;
    for (int t = 0; t < kPageTokens; ++t) top = codes[t] > top ? codes[t] : top;
    if (top <= kLowestScoreCode) return -infinity();
    for (int t = 0; t < kPageTokens; ++t) {
      if (codes[t] > kLowestScoreCode) codes[t] = static_cast<int16_t>(codes[t] - top);
    }
    return maximum + static_cast<float>(top) * (1 / kScoreUnits);
  }
  FASA_DEVICE void set_no_pages() const {
    if (params_.low_bit_pages.capacity > 0) params_.low_bit_pages.counts[index_] = 0;
  }

  FASA_DEVICE PageScorer scorer() const {
    return PageScorer(params_, sequence_, kv_head_, scorers_, simt::shared_memory());
  }

  FASA_DEVICE int first_page() const { return plan_.first_page(); }
  FASA_DEVICE int end_page() const { return first_page() + pages(); }
  FASA_DEVICE int pages() const { return plan_.pages(); }
  FASA_DEVICE bool visible(int position) const {
    return position >= plan_.first && position < plan_.end;
  }
  FASA_DEVICE bool competes(int position) const {
    return position >= plan_.sinks_end && position < plan_.recent_begin;
  }
  FASA_DEVICE int competing() const { return plan_.recent_begin - plan_.sinks_end; }

  // Distance of the sample's pages; 0: no sample, every token survives.
  FASA_DEVICE int stride() const {
    if (plan_.visible() <= kKeepAllTokens || plan_.ranked() >= (plan_.visible() + 3) / 4) return 0;
    const int shortest = pages() / 16 < 2 ? 2 : pages() / 16 > 16 ? 16 : pages() / 16;
    const int longest = (pages() + kSamplePages - 1) / kSamplePages;
    return shortest > longest ? shortest : longest;
  }

  // Returns true in the last block of the head that calls it; that block then sees the writes of
  // all others.
  FASA_DEVICE bool last_block(uint32_t* arrived, uint32_t* shared_flag) const {
    simt::sync_block();
    if (simt::thread_index() == 0) {
      simt::fence();  // behind the barrier: releases the writes of the whole block
      *shared_flag =
          simt::atomic_add(arrived, 1u) == static_cast<uint32_t>(simt::grid_x() - 1) ? 1 : 0;
      simt::fence();  // before the barrier: the whole block sees the writes of the others
    }
    simt::sync_block();
    const bool last = *shared_flag != 0;
    simt::sync_block();
    return last;
  }

  // The maximum over the heads of (score - the head's maximum), as a key. `raw(h)`: score of each
  // head of the group.
  template <typename Raw>
  FASA_DEVICE uint32_t relative_key(const Raw& raw, const float* maxima) const {
    float best = raw(0) - maxima[0];
    for (int h = 1; h < group(); ++h) {
      const float relative = raw(h) - maxima[h];
      best = relative > best ? relative : best;
    }
    return key_of(best + 0.0f);  // -0 is 0
  }

  // A list: [token][query head of the GQA group]. Scores of other blocks are loaded past the
  // L1 cache, by loads that are not reordered: those of kAhead tokens are in flight together.
  static constexpr int kAhead = 4;
  struct Four {
    float of[4];
  };
  // Scores of heads h to h + 3; -inf beyond the GQA group.
  FASA_DEVICE Four four_scores(const float* scores, int64_t token, int h) const {
    const float* at = scores + token * group() + h;
    Four four;
    if (group() % 4 == 0) {
      const simt::Word16 words = simt::load_fresh(reinterpret_cast<const simt::Word16*>(at));
      for (int i = 0; i < 4; ++i) four.of[i] = simt::float_of(words.words[i]);
    } else {
      for (int i = 0; i < 4; ++i)
        four.of[i] = h + i < group() ? simt::load_fresh(at + i) : -infinity();
    }
    return four;
  }
  // Stores score(h) of every head as the scores of one token.
  template <typename Score>
  FASA_DEVICE void store_scores(float* scores, int64_t token, const Score& score) const {
    float* at = scores + token * group();
    if (group() % 4 == 0) {
      for (int h = 0; h < group(); h += 4) {
        simt::Word16 words;
        for (int i = 0; i < 4; ++i) words.words[i] = simt::bits_of(score(h + i));
        *reinterpret_cast<simt::Word16*>(at + h) = words;
      }
    } else {
      for (int h = 0; h < group(); ++h) at[h] = score(h);
    }
  }
  // As relative_key(), for tokens first, first + block_threads(), ... of a list, below `count`.
  FASA_DEVICE void relative_keys(const float* scores, int first, int count, const float* maxima,
                                 uint32_t (&keys)[kAhead]) const {
    float best[kAhead];
    FASA_UNROLL
    for (int a = 0; a < kAhead; ++a) best[a] = -infinity();
    for (int h = 0; h < group(); h += 4) {
      Four four[kAhead];
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const int token = first + a * simt::block_threads();
        four[a] = four_scores(scores, token < count ? token : first, h);
      }
      FASA_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        FASA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float relative = four[a].of[i] - maxima[h + i];
          best[a] = relative > best[a] ? relative : best[a];
        }
      }
    }
    FASA_UNROLL
    for (int a = 0; a < kAhead; ++a) keys[a] = key_of(best[a] + 0.0f);
  }

  // Loads the maxima of all heads, raised by other blocks, into shared memory, with 0 up to a
  // multiple of four heads. They are finite: for a head with only -inf it is the lowest float.
  // Called by the whole block; ends with a barrier.
  FASA_DEVICE void load_maxima(float* shared) const {
    const uint32_t lowest = key_of(kLowestFloat);
    for (int h = simt::thread_index(); h < whole_fours(); h += simt::block_threads()) {
      const uint32_t key = h < group() ? simt::load_fresh(lists_.maxima + h) : key_of(0.0f);
      shared[h] = value_of(key < lowest ? lowest : key);
    }
    simt::sync_block();
  }
  // Heads, rounded up to a multiple of four.
  FASA_DEVICE int whole_fours() const { return (group() + 3) / 4 * 4; }

 private:
  const SelectParams& params_;
  const ScorerLayout& scorers_;
  const int kv_head_;
  const int64_t index_;
  const SequenceDesc& sequence_;
  const SelectPlan plan_;
  const SelectLists lists_;
};

// One token's score: NaN becomes -inf and is counted; +inf becomes the largest finite number.
FASA_DEVICE float finite_score(float score, int* nans) {
  if (score != score) {
    ++*nans;
    return -infinity();
  }
  return score < -kLowestFloat ? score : -kLowestFloat;
}

// Visits pages [first, end) in turn by the scoring warps of block `part` of `parts`. A warp calls
// visit(page, scores). The addresses of 32 pages are loaded together.
template <typename Visit>
FASA_DEVICE void visit_pages(const PageScorer& scorer, int first, int end, int part, int parts,
                             const Visit& visit) {
  if (simt::warp() >= scorer.warps()) return;
  const int step = parts * scorer.warps();
  first += part * scorer.warps() + simt::warp();
  const std::byte* blocks = nullptr;
  int in_batch = 0;
  for (int page = first; page < end; page += step) {
    if (in_batch == 0) {
      const int64_t mine = page + int64_t{simt::lane()} * step;
      blocks = mine < end ? scorer.block_of(static_cast<int>(mine)) : nullptr;
    }
    const auto block = simt::shuffle(reinterpret_cast<uint64_t>(blocks), in_batch);
    in_batch = (in_batch + 1) % simt::kWarpThreads;
    scorer.score(page, reinterpret_cast<const std::byte*>(block));
    visit(page, scorer.scores());
  }
}

}  // namespace fasa::cuda
