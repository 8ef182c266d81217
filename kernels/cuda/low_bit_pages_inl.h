// A block of pages of a low-bit set of all other tokens (low_bit_pages.h): weights relative to the
// block's largest score, values from whole pages of codes. The next page arrives in shared memory
// while one is summed. Threads sum codes, two dimensions for up to four heads, over all tokens of a
// page or half of them; the page's scales are applied to the sums.
#pragma once

#include "kernels/cuda/rows_inl.h"
#include "kernels/cuda/softmax_inl.h"
#include "kernels/params.h"
#include "kernels/slice_codec_inl.h"

namespace fasa::cuda {

class LowBitPagesBlock {
 public:
  static constexpr int kThreads = 128;

  // Floats of shared memory: 2^(-i / 8) for i < 64, maxima and sums of the heads, weights of a
  // page, sums of values of each team, two pages.
  static constexpr int64_t shared_floats(const CacheLayout& layout, int heads) {
    const int64_t floats = floats_before_pages(layout, heads);
    return staged(layout) ? floats + 2 * layout.values.page_bytes() / int64_t{sizeof(float)}
                          : floats;
  }
  FASA_DEVICE static int pages(const AttendParams& params, int head) {
    return params.low_bit_pages.capacity == 0 ? 0 : params.low_bit_pages.counts[head];
  }
  FASA_DEVICE static int blocks(const AttendParams& params, int head) {
    return low_bit_blocks(pages(params, head));
  }

  // `head`: sequence x kv_heads + kv_head; `first_query`: in the GQA group.
  FASA_DEVICE LowBitPagesBlock(const AttendParams& params, int head, int first_query, int heads,
                               float* shared)
      : params_(params),
        layout_(params.step.layout),
        pages_(params.low_bit_pages),
        kv_head_(head % layout_.kv_heads),
        heads_(heads),
        width_(padded(heads)),
        count_(pages(params, head)),
        first_query_(int64_t{head} * layout_.gqa_group + first_query),
        desc_(params.step.sequences[head / layout_.kv_heads]),
        eighths_(shared),
        tops_(eighths_ + 64),
        totals_(tops_ + width_),
        page_totals_(totals_ + width_),
        weights_(page_totals_ + width_),
        sums_(weights_ + kPageTokens * width_),
        staged_(reinterpret_cast<std::byte*>(shared + floats_before_pages(layout_, heads))) {}

  // partial(heads): f32 [2 + value_dim] of each, `stride` floats apart. All threads of the block;
  // contains barriers but does not end with one.
  FASA_DEVICE void compute(int block, float* partial, int64_t stride) const {
    const int first = block * kLowBitBlockPages;
    const int left = count_ - first;
    const int end = first + (left < kLowBitBlockPages ? left : kLowBitBlockPages);
    const int dims = layout_.values.dims;
    const bool has_tail = end == count_;  // the newest page
    const int sealed = has_tail ? end - 1 : end;
    if (first < sealed) bring(first);
    simt::commit_copies();
    for (int i = simt::thread_index(); i < 64; i += kThreads) {
      eighths_[i] = codec::scale_of_step(-i);
    }
    for (int i = simt::thread_index(); i < teams() * heads_ * dims; i += kThreads) sums_[i] = 0;
    find_tops(first, end);
    simt::sync_block();
    for (int page = first; page < end; ++page) {
      if (page + 1 < sealed) bring(page + 1);
      simt::commit_copies();
      weigh(page);
      simt::wait_copies<1>();
      simt::sync_block();
      if (page < sealed) {
        sum_sealed(page);
      } else {
        sum_tail();
      }
      simt::sync_block();
    }
    for (int i = simt::thread_index(); i < heads_ * dims; i += kThreads) {
      const float other = teams() == 2 ? sums_[heads_ * dims + i] : 0.0f;
      partial[i / dims * stride + kStateHeader + i % dims] = sums_[i] + other;
    }
    for (int h = simt::thread_index(); h < heads_; h += kThreads) {
      partial[h * stride] = tops_[h];
      partial[h * stride + 1] = totals_[h];
    }
  }

 private:
  static constexpr int kSummed = 4;  // query heads of a thread

  static constexpr int padded(int heads) { return (heads + kSummed - 1) / kSummed * kSummed; }
  static constexpr int items(const CacheLayout& layout, int heads) {
    return padded(heads) / kSummed * ((layout.values.dims + 1) / 2);
  }
  // Threads that share a page's dimensions: all, or two teams with half of the tokens each.
  static constexpr int teams(const CacheLayout& layout, int heads) {
    return 2 * items(layout, heads) <= kThreads ? 2 : 1;
  }
  FASA_DEVICE int teams() const { return teams(layout_, heads_); }
  static constexpr bool staged(const CacheLayout& layout) {
    return layout.values.page_bytes() <= 8 << 10;
  }
  static constexpr int64_t floats_before_pages(const CacheLayout& layout, int heads) {
    const int64_t sums = int64_t{teams(layout, heads)} * heads * layout.values.dims;
    return align_up(64 + int64_t{3 + kPageTokens} * padded(heads) + sums, 4);
  }

  // Index of a page's maximum, and in pages of its scores.
  FASA_DEVICE int64_t at(int head, int page) const { return pages_.at(first_query_ + head) + page; }
  FASA_DEVICE int first_page() const { return pages_of(desc_.end()) - count_; }
  FASA_DEVICE const std::byte* block_of(int page) const {
    return desc_.slice_blocks[first_page() + page];
  }
  FASA_DEVICE const std::byte* codes_of(int page) const {
    return block_of(page) + layout_.value_offset(params_.step.layer, kv_head_);
  }

  FASA_DEVICE void bring(int page) const {
    if (!staged(layout_)) return;
    const int64_t bytes = layout_.values.page_bytes();
    auto* to = reinterpret_cast<simt::Word16*>(staged_ + page % 2 * bytes);
    const auto* from = reinterpret_cast<const simt::Word16*>(codes_of(page));
    const int words = static_cast<int>(bytes / int64_t{sizeof(simt::Word16)});
    for (int i = simt::thread_index(); i < words; i += kThreads) {
      simt::copy_async(to + i, from + i);
    }
  }

  // The heads' maxima over pages [first, end).
  FASA_DEVICE void find_tops(int first, int end) const {
    for (int h = simt::thread_index(); h < heads_; h += kThreads) {
      float top = no_maximum();
      for (int page = first; page < end; ++page) {
        const float maximum = pages_.maxima[at(h, page)];
        top = maximum > top ? maximum : top;
      }
      tops_[h] = top;
      totals_[h] = 0;
    }
  }

  // Writes the page's weights, [token][head], one warp per head.
  FASA_DEVICE void weigh(int page) const {
    for (int h = simt::warp(); h < width_; h += kThreads / simt::kWarpThreads) {
      float sum = 0;
      for (int t = simt::lane(); t < kPageTokens; t += simt::kWarpThreads) {
        float weight = 0;
        const int64_t of_page = at(h < heads_ ? h : 0, page);
        const int16_t code = h < heads_ ? pages_.scores[of_page * kPageTokens + t] : kNoScoreCode;
        if (code != kNoScoreCode) {
          const float score = pages_.maxima[of_page] + static_cast<float>(code) * (1 / kScoreUnits);
          if (score != no_maximum()) weight = exponential(score - tops_[h]);
        }
        weights_[t * width_ + h] = weight;
        sum += weight;
      }
      sum = simt::warp_sum(sum);
      if (simt::lane() == 0) page_totals_[h] = sum;
      if (simt::lane() == 0 && h < heads_) totals_[h] += sum;
    }
  }

  struct Sums {
    Pair of[kSummed];

    FASA_DEVICE void add(const float* weights, float low, float high) {
      FASA_UNROLL
      for (int h = 0; h < kSummed; ++h) {
        of[h].low = simt::fused(weights[h], low, of[h].low);
        of[h].high = simt::fused(weights[h], high, of[h].high);
      }
    }
  };
  // One thread's part of a page: a pair of dimensions for four heads, over a range of tokens.
  struct Item {
    int pair;
    int first_head;
    int begin;  // tokens
    int end;
    int team;
  };
  template <typename Visit>
  FASA_DEVICE void each_item(const Visit& visit) const {
    const int count = items(layout_, heads_);
    const int pairs = (layout_.values.dims + 1) / 2;
    const int tokens = kPageTokens / teams();
    for (int i = simt::thread_index(); i < count * teams(); i += kThreads) {
      const int item = i % count;
      const int team = i / count;
      visit(Item{item % pairs, item / pairs * kSummed, team * tokens, (team + 1) * tokens, team});
    }
  }
  // Adds to the sums of values: scale * (code sum + zero * weights).
  FASA_DEVICE void add(const Item& item, const Sums& sums, Pair scale, Pair zero) const {
    const int dims = layout_.values.dims;
    for (int h = item.first_head; h < item.first_head + kSummed && h < heads_; ++h) {
      float* out = sums_ + (item.team * heads_ + h) * dims + 2 * item.pair;
      const Pair& sum = sums.of[h - item.first_head];
      const float total = item.team == 0 ? page_totals_[h] : 0.0f;
      out[0] = simt::fused(scale.low, simt::fused(zero.low, total, sum.low), out[0]);
      if (2 * item.pair + 1 == dims) continue;
      out[1] = simt::fused(scale.high, simt::fused(zero.high, total, sum.high), out[1]);
    }
  }

  FASA_DEVICE void sum_sealed(int page) const {
    const std::byte* codes =
        staged(layout_) ? staged_ + page % 2 * layout_.values.page_bytes() : codes_of(page);
    const float base = *reinterpret_cast<const float*>(
        block_of(page) + layout_.value_base_offset(params_.step.layer, kv_head_));
    switch (slice_bits(layout_.values.dtype)) {
      case 2:
        return sum_codes<2>(codes, base);
      case 4:
        return sum_codes<4>(codes, base);
      default:
        return sum_codes<8>(codes, base);
    }
  }

  template <int kBits>
  FASA_DEVICE void sum_codes(const std::byte* codes, float base) const {
    constexpr int kUnit = 32 / kBits;
    constexpr uint32_t kMask = (1u << kBits) - 1;
    const int words = layout_.values.groups();
    const auto* parameters = reinterpret_cast<const uint32_t*>(codes + layout_.values.code_bytes());
    each_item([&](const Item& item) {
      const int d = 2 * item.pair;
      const auto* word = reinterpret_cast<const uint32_t*>(codes) + d / kUnit;
      const int low = d % 4 * 8 + d % kUnit / 4 * kBits;
      Sums sums = {};
      FASA_UNROLL_8
      for (int t = item.begin; t < item.end; ++t) {
        const uint32_t bits = word[t * words] >> low;
        sums.add(weights_ + t * width_ + item.first_head, static_cast<float>(bits & kMask),
                 static_cast<float>(bits >> 8 & kMask));
      }
      const uint32_t parameter = parameters[item.pair];
      add(item, sums, {scale(parameter, base), scale(parameter >> 16, base)},
          {zero<kBits>(parameter), zero<kBits>(parameter >> 16)});
    });
  }
  // Scale of the dimension whose parameter is the low half of `parameter`.
  FASA_DEVICE float scale(uint32_t parameter, float base) const {
    return eighths_[parameter & 63] * base;
  }
  template <int kBits>
  FASA_DEVICE static float zero(uint32_t parameter) {
    constexpr float kZeroUnit = kBits == 2 ? 0.5f : kBits == 4 ? 2.0f : 32.0f;
    return static_cast<float>(static_cast<int16_t>(parameter & 0xffffu) >> 6) * kZeroUnit;
  }

  // Values of the newest page are pairs of bf16.
  FASA_DEVICE void sum_tail() const {
    const auto* tail = reinterpret_cast<const uint32_t*>(
        desc_.tail + layout_.value_tail_offset(params_.step.layer, kv_head_));
    const int newest = (desc_.end() - 1) % kPageTokens;  // later slots hold no token
    each_item([&](const Item& item) {
      Sums sums = {};
      for (int t = item.begin; t < item.end && t <= newest; ++t) {
        const uint32_t word = tail[item.pair * kPageTokens + t];
        sums.add(weights_ + t * width_ + item.first_head, simt::float_of(word << 16),
                 simt::float_of(word & 0xffff0000u));
      }
      add(item, sums, {1, 1}, {0, 0});
    });
  }

  const AttendParams& params_;
  const CacheLayout& layout_;
  const LowBitPages& pages_;
  const int kv_head_;
  const int heads_;
  const int width_;  // heads, padded
  const int count_;  // pages
  const int64_t first_query_;
  const SequenceDesc& desc_;
  float* const eighths_;      // [64]
  float* const tops_;         // [width]
  float* const totals_;       // [width]
  float* const page_totals_;  // [width]
  float* const weights_;      // [kPageTokens][width]
  float* const sums_;         // [teams][heads][dims]
  std::byte* const staged_;   // two pages
};

}  // namespace fasa::cuda
