// Shared by the passes of a select (select_inl.h): one block's view of its (sequence, KV head),
// scores made finite, sort keys.
#pragma once

#include "kernels/cuda/select/block_rank_inl.h"
#include "kernels/cuda/select/page_scorer_inl.h"
#include "kernels/cuda/select/select_scratch.h"
#include "kernels/cuda/simt.h"
#include "kernels/select_plan.h"

namespace fasa::cuda {

inline constexpr float kLowestFloat = -3.402823466e38f;

FASA_DEVICE float infinity() { return simt::float_of(0x7f800000u); }

// A key of the same order as the float; 0 is below all of them. Not for NaN.
FASA_DEVICE uint32_t key_of(float value) {
  const uint32_t bits = simt::bits_of(value);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// A head's part of the scratch memory.
struct SelectLists {
  float* raw;           // [token][group], from the first visible page on
  float* run_maxima;    // [run][group], of tokens that compete
  uint32_t* run_keys;   // [run]
  float* block_maxima;  // [block][group]
  int32_t* positions;   // candidates, and their keys
  uint32_t* keys;
  int32_t* both;
  int capacity;

  FASA_DEVICE static SelectLists of(const SelectScratch& scratch, std::byte* memory, int64_t head) {
    std::byte* lists = memory + head * scratch.head_bytes();
    SelectLists found = {};
    found.raw = reinterpret_cast<float*>(lists + scratch.raw_at());
    found.run_maxima = reinterpret_cast<float*>(lists + scratch.run_maxima_at());
    found.run_keys = reinterpret_cast<uint32_t*>(lists + scratch.run_keys_at());
    found.block_maxima = reinterpret_cast<float*>(lists + scratch.block_maxima_at());
    found.positions = reinterpret_cast<int32_t*>(lists + scratch.positions_at());
    found.keys = reinterpret_cast<uint32_t*>(lists + scratch.keys_at());
    found.both = reinterpret_cast<int32_t*>(lists + scratch.both_at());
    found.capacity = scratch.capacity;
    return found;
  }
};

// One block's head of a sequence: its indices, its plan, its lists.
class SelectHead {
 public:
  FASA_DEVICE SelectHead(const SelectParams& params, const SelectScratch& scratch)
      : SelectHead(params, scratch, simt::block_z(),
                   plan_selection(params, params.step.sequences[simt::block_z()])) {}
  FASA_DEVICE SelectHead(const SelectParams& params, const SelectScratch& scratch, int sequence,
                         const SelectPlan& plan)
      : params_(params),
        kv_head_(params.step.first_head() + simt::block_y()),
        index_(int64_t{sequence} * params.step.layout.kv_heads + kv_head_),
        sequence_(params.step.sequences[sequence]),
        plan_(plan),
        lists_(SelectLists::of(scratch, params.scratch, index_)) {}

  FASA_DEVICE bool decodes() const { return sequence_.mode == StepMode::kDecode; }
  // Whether any page has to be scored.
  FASA_DEVICE bool scores() const { return decodes() && !plan_.is_dense(); }
  FASA_DEVICE const SelectPlan& plan() const { return plan_; }
  FASA_DEVICE const SelectLists& lists() const { return lists_; }
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

  // For a low-bit set by page: the index of a query head's page, and the page's codes, two a word.
  FASA_DEVICE int64_t low_bit_page(int head, int page) const {
    return params_.low_bit_pages.at(index_ * group() + head) + page;
  }
  FASA_DEVICE uint32_t* low_bit_codes(int64_t page) const {
    return reinterpret_cast<uint32_t*>(params_.low_bit_pages.scores + page * kPageTokens);
  }
  FASA_DEVICE void set_page_count(int count) const {
    if (params_.low_bit_pages.capacity > 0) params_.low_bit_pages.counts[index_] = count;
  }

  // For this token and those that are scored together with it.
  FASA_DEVICE PageScorer scorer(const ScorerLayout& layout) const {
    return PageScorer(params_, &sequence_, kv_head_, layout, simt::shared_memory());
  }

  FASA_DEVICE int first_page() const { return plan_.first_page(); }
  FASA_DEVICE int pages() const { return plan_.pages(); }
  FASA_DEVICE int end_page() const { return first_page() + pages(); }
  FASA_DEVICE bool visible(int position) const {
    return position >= plan_.first && position < plan_.end;
  }
  FASA_DEVICE bool competes(int position) const {
    return position >= plan_.sinks_end && position < plan_.recent_begin;
  }

  // A list: [token][query head of the GQA group]. Loads past the L1 cache are not reordered: those
  // of kAhead tokens are in flight together.
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
  // Stores the scores of heads h to h + 3 of one token.
  FASA_DEVICE void store_four(float* scores, int64_t token, int h, const Four& four) const {
    float* const at = scores + token * group() + h;
    if (group() % 4 == 0) {
      simt::Word16 words;
      for (int i = 0; i < 4; ++i) words.words[i] = simt::bits_of(four.of[i]);
      *reinterpret_cast<simt::Word16*>(at) = words;
    } else {
      for (int i = 0; i < 4 && h + i < group(); ++i) at[i] = four.of[i];
    }
  }
  // Keys of the tokens token_of(0) to token_of(kCount - 1) of a list: the maximum over the heads of
  // (score - the head's maximum).
  template <int kCount, typename TokenOf>
  FASA_DEVICE void relative_keys(const float* scores, const TokenOf& token_of, const float* maxima,
                                 uint32_t (&keys)[kCount]) const {
    float best[kCount];
    FASA_UNROLL
    for (int a = 0; a < kCount; ++a) best[a] = -infinity();
    for (int h = 0; h < group(); h += 4) {
      Four four[kCount];
      FASA_UNROLL
      for (int a = 0; a < kCount; ++a) four[a] = four_scores(scores, token_of(a), h);
      FASA_UNROLL
      for (int a = 0; a < kCount; ++a) {
        FASA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float relative = four[a].of[i] - maxima[h + i];
          best[a] = relative > best[a] ? relative : best[a];
        }
      }
    }
    FASA_UNROLL
    for (int a = 0; a < kCount; ++a) keys[a] = key_of(best[a] + 0.0f);  // -0 is 0
  }
  // The same for tokens first, first + block_threads(), ... below `count`.
  FASA_DEVICE void relative_keys(const float* scores, int first, int count, const float* maxima,
                                 uint32_t (&keys)[kAhead]) const {
    const auto token_of = [&](int a) {
      const int token = first + a * simt::block_threads();
      return token < count ? token : first;
    };
    relative_keys<kAhead>(scores, token_of, maxima, keys);
  }

  // Writes the maxima of all heads over `blocks` blocks to shared memory, with 0 up to a multiple
  // of four heads. They are finite: for a head with only -inf it is the lowest float. Called by the
  // whole block; ends with a barrier.
  FASA_DEVICE void load_maxima(int blocks, float* shared) const {
    for (int h = simt::warp(); h < whole_fours(); h += simt::block_warps()) {
      float maximum = h < group() ? kLowestFloat : 0.0f;
      for (int b = simt::lane(); b < blocks && h < group(); b += simt::kWarpThreads) {
        const float of_block = simt::load_fresh(lists_.block_maxima + b * group() + h);
        maximum = of_block > maximum ? of_block : maximum;
      }
      maximum = simt::warp_max(maximum);
      if (simt::lane() == 0) shared[h] = maximum;
    }
    simt::sync_block();
  }
  // Heads, rounded up to a multiple of four.
  FASA_DEVICE int whole_fours() const { return (group() + 3) / 4 * 4; }

 private:
  const SelectParams& params_;
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

// Visits pages [first, end) in turn by the block's scoring warps. A warp calls visit(page, scores).
// The addresses of 32 pages are loaded together.
template <typename Visit>
FASA_DEVICE void visit_pages(const PageScorer& scorer, int first, int end, const Visit& visit) {
  if (simt::warp() >= scorer.warps()) return;
  const int step = scorer.warps();
  first += simt::warp();
  const std::byte* blocks = nullptr;
  int in_batch = 0;
  for (int page = first; page < end; page += step) {
    if (in_batch == 0) {
      const int64_t mine = page + int64_t{simt::lane()} * step;
      blocks = mine < end ? scorer.block_of(static_cast<int>(mine)) : nullptr;
    }
    const auto of = [blocks](int i) {
      return reinterpret_cast<const std::byte*>(
          simt::shuffle(reinterpret_cast<uint64_t>(blocks), i));
    };
    const std::byte* const block = of(in_batch);
    in_batch = (in_batch + 1) % simt::kWarpThreads;
    if (in_batch != 0) scorer.prefetch(of(in_batch));
    scorer.score(page, block);
    visit(page, scorer.scores());
  }
}

}  // namespace fasa::cuda
