// A block of pages of a low-bit set of all other tokens (low_bit_pages.h) by tensor cores:
// dimensions x query heads, summed over tokens. Each warp takes pages of its own, without barriers.
//
// Weights are relative to the block's largest score and rounded to f16, times 2^15, so that weights
// down to 2^-39 of the largest count; their total is that of the rounded ones, a product with ones.
// Codes are used without conversion: one byte permute brings the same byte of two tokens' words
// into one word, and a code's bits, masked out of it, are the subnormal f16 code * 2^(place - 24).
// Per page and dimension the sums become
//
//     scale * (Σ weight code + zero * Σ weight)
//
// Lane (row, c) reads word `row` of eight words of a token, for tokens 8c to 8c + 7 of each half of
// the page: all of the word's dimensions are rows of products that end in this lane. With up to
// four heads a warp takes two pages at a time: their weights are computed together, and of the
// eight columns of a product the first four count for one page, the others for the other. Several
// tokens of a sequence have up to eight columns together: a warp takes the same pages, first the
// even ones, then the odd ones, so that all sums are those of one token alone.
#pragma once

#include "kernels/code_width.h"
#include "kernels/cuda/low_bit_codes_inl.h"
#include "kernels/cuda/math_inl.h"
#include "kernels/cuda/mma_inl.h"
#include "kernels/cuda/softmax_inl.h"
#include "kernels/params.h"
#include "kernels/slice_codec_inl.h"

namespace fasa::cuda {

class LowBitPagesBlock {
 public:
  static constexpr int kThreads = 128;

  // Floats of shared memory: 2^(-i / 8) for i < 64, maxima and totals of the columns, the tail's
  // weights, totals and sums of each warp.
  static constexpr int64_t shared_floats(const CacheLayout& layout, int columns) {
    const int products = 16 / slice_bits(layout.values.dtype);
    return sums_at(columns) + int64_t{kWarps} * products * LowBitSums::kStride;
  }
  FASA_DEVICE static int pages(const AttendParams& params, int head) {
    return params.low_bit_pages.capacity == 0 ? 0 : params.low_bit_pages.counts[head];
  }
  FASA_DEVICE static int blocks(const AttendParams& params, int head) {
    return low_bit_blocks(pages(params, head));
  }
  // How many tokens of the sequence the block of this one attends for; 0: an earlier token's does.
  FASA_DEVICE static int tokens(const AttendParams& params, int sequence, int kv_head) {
    const StepParams& step = params.step;
    const int first = sequence / step.together * step.together;
    if (step.together * step.layout.gqa_group > kColumns) return 1;
    int count = 0;
    for (; count < step.together; ++count) {
      if (step.sequences[first + count].mode != StepMode::kDecode) break;
      const int head = (first + count) * step.layout.kv_heads + kv_head;
      if (pages(params, head) != pages(params, first * step.layout.kv_heads + kv_head)) return 1;
    }
    return sequence == first ? count : 0;
  }

  // `head`: sequence x kv_heads + kv_head; `first_query`: in the GQA group, from which `heads` are
  // attended for, of each of `tokens` tokens.
  FASA_DEVICE LowBitPagesBlock(const AttendParams& params, int head, int first_query, int heads,
                               int tokens, float* shared)
      : params_(params),
        layout_(params.step.layout),
        pages_(params.low_bit_pages),
        kv_head_(head % layout_.kv_heads),
        codes_at_(layout_.value_offset(params.step.layer, kv_head_)),
        base_at_(layout_.value_base_offset(params.step.layer, kv_head_)),
        heads_(heads),
        columns_(tokens * heads),
        count_(pages(params, head)),
        first_query_(int64_t{head} * layout_.gqa_group + first_query),
        desc_(params.step.sequences[head / layout_.kv_heads]),
        eighths_(shared),
        warp_totals_(eighths_ + 64),
        tops_(warp_totals_ + kWarps * kColumns),
        tail_totals_(tops_ + columns_),
        tail_weights_(shared + tail_at(columns_)),
        sums_(shared + sums_at(columns_)) {}

  // Partials of the heads: f32 [2 + value_dim].
  struct Partials {
    float* first;
    int64_t stride;        // floats from one head to the next
    int64_t token_stride;  // from one token to the next
  };
  // All threads of the block; contains barriers but does not end with one.
  FASA_DEVICE void compute(int block, const Partials& partials) const {
    Range range;
    range.first = block * kLowBitBlockPages;
    const int left = count_ - range.first;
    range.pages = left < kLowBitBlockPages ? left : kLowBitBlockPages;
    range.has_tail = left == range.pages;  // the newest page
    range.sealed = range.has_tail ? range.pages - 1 : range.pages;
    range.blocks = 0;
    if (simt::lane() < range.sealed) {
      const int page = pages_of(desc_.end()) - left + simt::lane();
      range.blocks = reinterpret_cast<uint64_t>(desc_.slice_blocks[page]);
    }
    for (int i = simt::thread_index(); i < 64; i += kThreads) {
      eighths_[i] = codec::scale_of_step(-i);
    }
    for (int i = simt::warp(); i < columns_; i += kWarps) prepare(range, i);
    with_code_width(slice_bits(layout_.values.dtype), AllCodeWidths(),
                    [&]<int kBits>() { compute_codes<kBits>(range, partials); });
  }

 private:
  static constexpr int kWarps = kThreads / simt::kWarpThreads;
  static constexpr int kColumns = 8;        // of a product
  static constexpr int kWords = 8;          // of a token, at a time
  static constexpr int kMine = 16;          // tokens of a lane
  static constexpr float kWeightBits = 15;  // weights are times 2^15
  static constexpr float kLog2E = 1.44269504f;
  static constexpr float kUnscaleWeight = 1.0f / 32768.0f;
  static constexpr float kUnscaleSum = 512.0f;  // 2^(24 - 15)

  static constexpr int64_t tail_at(int columns) {
    return align_up(64 + kWarps * kColumns + 2 * int64_t{columns}, 4);
  }
  static constexpr int64_t sums_at(int columns) {
    return tail_at(columns) + int64_t{columns} * kPageTokens;
  }

  // The block's pages, and the slice block of page `first` + lane.
  struct Range {
    int first;
    int pages;
    int sealed;
    bool has_tail;
    uint64_t blocks;

    FASA_DEVICE const std::byte* block_of(int page) const {
      const auto block = simt::shuffle(blocks, page < kLowBitBlockPages ? page : 0);
      return page < sealed ? reinterpret_cast<const std::byte*>(block) : nullptr;
    }
  };
  // Columns, and words of a token, that a pass over the pages sums; of all pages, or of every other
  // one.
  struct Pass {
    int first_column;
    int columns;
    int first_word;
    int first_page;  // of the warp
    int page_step;
    bool begins;
    bool ends;
  };

  template <int kBits>
  FASA_DEVICE int words_of() const {  // of a token
    return (layout_.values.dims + LowBitCodes<kBits>::kUnit - 1) / LowBitCodes<kBits>::kUnit;
  }
  FASA_DEVICE int token_of(int column) const { return column / heads_; }
  // Index of a page's maximum, and in pages of its scores.
  FASA_DEVICE int64_t at(int column, int page) const {
    const int query = token_of(column) * layout_.query_heads() + column % heads_;
    return pages_.at(first_query_ + query) + page;
  }
  FASA_DEVICE float* partial_of(const Partials& partials, int column) const {
    return partials.first + token_of(column) * partials.token_stride +
           column % heads_ * partials.stride;
  }

  // By one warp: a column's maximum over the pages, and its weights of the tail.
  FASA_DEVICE void prepare(const Range& range, int column) const {
    const float* maxima = pages_.maxima + at(column, range.first);
    static_assert(kLowBitBlockPages <= simt::kWarpThreads);
    const float mine = simt::lane() < range.pages ? maxima[simt::lane()] : no_maximum();
    const float top = simt::warp_max(mine);
    float sum = 0;
    if (range.has_tail) {
      const float maximum = simt::shuffle(mine, range.pages - 1);
      const int16_t* scores =
          pages_.scores + at(column, range.first + range.pages - 1) * kPageTokens;
      for (int t = simt::lane(); t < kPageTokens; t += simt::kWarpThreads) {
        const bool counts = scores[t] != kNoScoreCode && maximum != no_maximum();
        const float score = maximum + static_cast<float>(scores[t]) * (1 / kScoreUnits);
        const float weight = counts ? exponential(score - top) : 0.0f;
        tail_weights_[column * kPageTokens + t] = weight;
        sum += weight;
      }
      sum = simt::warp_sum(sum);
    }
    if (simt::lane() == 0) tops_[column] = top, tail_totals_[column] = sum;
  }

  template <int kBits>
  FASA_DEVICE void compute_codes(const Range& range, const Partials& partials) const {
    const int words = words_of<kBits>();
    for (int first = 0; first < columns_; first += kColumns) {
      const int left = columns_ - first;
      for (int word = 0; word < words; word += kWords) {
        Pass pass = {first, left < kColumns ? left : kColumns, word, simt::warp(), kWarps, true,
                     true};
        if (pass.columns <= kColumns / 2) {
          pass.first_page *= 2, pass.page_step *= 2;
          add_pages<kBits, 2>(range, pass, partials);
          continue;
        }
        if (columns_ > heads_) {
          Pass even = pass;
          even.first_page *= 2, even.page_step *= 2, even.ends = false;
          add_pages<kBits, 1>(range, even, partials);
          pass = even;
          ++pass.first_page, pass.begins = false, pass.ends = true;
        }
        add_pages<kBits, 1>(range, pass, partials);
      }
    }
  }
  template <int kBits, int kPages>
  FASA_DEVICE void add_pages(const Range& range, const Pass& pass, const Partials& partials) const {
    simt::sync_block();
    sum_pages<kBits, kPages>(range, pass);
    simt::sync_block();
    write<kBits, kPages>(range, pass, partials);
  }

  // The lane's word of each of its tokens, of `of_token`; zero without a page.
  FASA_DEVICE void load_words(const std::byte* block, int word, int of_token,
                              uint32_t (&words)[kMine]) const {
    FASA_UNROLL
    for (uint32_t& zero : words) zero = 0;
    if (block == nullptr || word >= of_token) return;
    const auto* codes = reinterpret_cast<const uint32_t*>(block + codes_at_) +
                        simt::lane() % 4 * 8 * of_token + word;
    FASA_UNROLL
    for (int i = 0; i < kMine; ++i) {
      words[i] = simt::load_once(codes + (i / 8 * 32 + i % 8) * of_token);
    }
  }

  // Weights of the lane's tokens for one column, in pairs; zero without a page.
  FASA_DEVICE void weigh(int column, float top, int page, bool some,
                         uint32_t (&weights)[kMine / 2]) const {
    const int64_t of_page = at(column, page);
    float maximum = no_maximum();
    simt::Word16 codes[2] = {};
    if (some) {
      maximum = pages_.maxima[of_page];
      const auto* scores =
          reinterpret_cast<const simt::Word16*>(pages_.scores + of_page * kPageTokens);
      FASA_UNROLL
      for (int half = 0; half < 2; ++half) codes[half] = scores[half * 4 + simt::lane() % 4];
    }
    // kNoScoreCode is a weight below f16's range.
    const float offset =
        maximum == no_maximum() ? maximum : simt::fused(maximum - top, kLog2E, kWeightBits);
    const auto weight = [&](uint32_t code) {
      const auto distance = static_cast<float>(static_cast<int16_t>(code & 0xffffu));
      return power_of_2(simt::fused(distance, kLog2E / kScoreUnits, offset));
    };
    FASA_UNROLL
    for (int i = 0; i < kMine / 2; ++i) {
      const uint32_t two = codes[i / 4].words[i % 4];
      weights[i] = pack_f16(weight(two), weight(two >> 16));
    }
  }

  // Zero without a page.
  template <int kBits>
  FASA_DEVICE LowBitParameters<kBits> load_parameters(const std::byte* block, int word,
                                                      int of_token) const {
    LowBitParameters<kBits> parameters;
    if (block == nullptr || word >= of_token) return parameters;
    using Pairs = typename LowBitParameters<kBits>::Pairs;
    const std::byte* codes = block + codes_at_;
    parameters.pairs = reinterpret_cast<const Pairs*>(codes + of_token * kPageTokens * 4)[word];
    parameters.base = *reinterpret_cast<const float*>(block + base_at_);
    return parameters;
  }

  // Sums of this warp's pages, kPages at a time, to shared memory.
  template <int kBits, int kPages>
  FASA_DEVICE void sum_pages(const Range& range, const Pass& pass) const {
    using C = LowBitCodes<kBits>;
    constexpr int kOfPage = kColumns / kPages;
    const int row = simt::lane() / 4;
    const int word = pass.first_word + row;
    const int of_token = words_of<kBits>();
    const int column = pass.first_column + (row % kOfPage < pass.columns ? row % kOfPage : 0);
    const int weighed = row / kOfPage;                         // page of the lane's weights
    const bool second = kPages == 2 && simt::lane() % 4 >= 2;  // page of its sums
    const float top = tops_[column];
    float sums[C::kProducts][4] = {};
    float totals[2] = {};
    for (int page = pass.first_page; page < range.sealed; page += pass.page_step) {
      uint32_t words[kPages][kMine];
      const std::byte* block = nullptr;
      FASA_UNROLL
      for (int i = 0; i < kPages; ++i) {
        const std::byte* of_page = range.block_of(page + i);
        load_words(of_page, word, of_token, words[i]);
        if (i == 0 || second) block = of_page;
      }
      const LowBitParameters<kBits> parameters = load_parameters<kBits>(block, word, of_token);
      uint32_t weights[kMine / 2];
      weigh(column, top, range.first + page + weighed,
            row % kOfPage < pass.columns && page + weighed < range.sealed, weights);
      add_products<kBits, kPages>(words, weights, parameters, second, sums, totals);
    }
    auto* out = reinterpret_cast<simt::Word16*>(
        sums_ + LowBitSums::at(simt::warp() * C::kProducts, simt::lane()));
    FASA_UNROLL
    for (int i = 0; i < C::kProducts; ++i) {
      simt::Word16 four;
      FASA_UNROLL
      for (int j = 0; j < 4; ++j) four.words[j] = simt::bits_of(sums[i][j]);
      out[i * LowBitSums::kStride / 4] = four;
    }
    if (row == 0) {
      float* mine = warp_totals_ + simt::warp() * kColumns + 2 * simt::lane();
      mine[0] = totals[0], mine[1] = totals[1];
    }
  }

  template <int kBits, int kPages>
  FASA_DEVICE void add_products(const uint32_t (&words)[kPages][kMine],
                                const uint32_t (&weights)[kMine / 2],
                                const LowBitParameters<kBits>& parameters, bool second,
                                float (&sums)[LowBitCodes<kBits>::kProducts][4],
                                float (&totals)[2]) const {
    using C = LowBitCodes<kBits>;
    constexpr uint32_t kOnes = 0x3c003c00u;
    float of_page[4] = {};
    FASA_UNROLL
    for (int k = 0; k < kMine / 2; k += 2) {
      mma_f16(of_page, {kOnes, kOnes, kOnes, kOnes}, {weights[k], weights[k + 1]});
    }
    totals[0] += of_page[0];
    totals[1] += of_page[1];
    FASA_UNROLL
    for (int i = 0; i < C::kProducts; ++i) {
      float products[kPages][4] = {};
      FASA_UNROLL
      for (int k = 0; k < kMine / 2; k += 2) {
        FASA_UNROLL
        for (int p = 0; p < kPages; ++p) {
          const uint32_t* w = words[p] + 2 * k;
          mma_f16(products[p],
                  {C::pair(w[0], w[1], 2 * i), C::pair(w[0], w[1], 2 * i + 1),
                   C::pair(w[2], w[3], 2 * i), C::pair(w[2], w[3], 2 * i + 1)},
                  {weights[k], weights[k + 1]});
        }
      }
      FASA_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int dim = C::dim_of(2 * i + j / 2);
        const float place = C::unit_of(2 * i + j / 2);
        const float zero = static_cast<float>(parameters[dim] >> 6);
        const float total = of_page[j % 2] * (kZeroUnit<kBits> * 0x1p-24f * place);
        const float scale = eighths_[parameters[dim] & 63] * (parameters.base * (1 / place));
        const float product = second ? products[kPages - 1][j] : products[0][j];
        sums[i][j] = simt::fused(scale, simt::fused(zero, total, product), sums[i][j]);
      }
    }
  }

  // Adds up the warps' sums of even pages, then those of odd ones, and the tail's.
  template <int kBits, int kPages>
  FASA_DEVICE void write(const Range& range, const Pass& pass, const Partials& partials) const {
    using C = LowBitCodes<kBits>;
    constexpr int kOfPage = kColumns / kPages;
    const int first = pass.first_word * C::kUnit;
    const int left = layout_.values.dims - first;
    const int dims = left < kWords * C::kUnit ? left : kWords * C::kUnit;
    for (int i = simt::thread_index(); i < pass.columns * dims; i += kThreads) {
      const int column = i / dims;
      const int d = i % dims;
      const int row = C::row_of(d % C::kUnit);
      float& out = partial_of(partials, pass.first_column + column)[kStateHeader + first + d];
      float sum = pass.begins ? 0.0f : out;
      FASA_UNROLL
      for (int w = 0; w < kWarps * kPages; ++w) {
        const int at = w / kWarps * kOfPage + column;
        const int lane = d / C::kUnit * 4 + at / 2;
        sum +=
            sums_[LowBitSums::at(w % kWarps * C::kProducts + row / 2, lane) + row % 2 * 2 + at % 2];
      }
      const float tail =
          range.has_tail && pass.ends ? tail_sum(pass.first_column + column, first + d) : 0.0f;
      out = pass.ends ? simt::fused(sum, kUnscaleSum, tail) : sum;
    }
    if (first > 0 || simt::thread_index() >= pass.columns) return;
    const int column = pass.first_column + simt::thread_index();
    float* const partial = partial_of(partials, column);
    float total = pass.begins ? 0.0f : partial[1];
    for (int w = 0; w < kWarps * kPages; ++w) {
      total += warp_totals_[w % kWarps * kColumns + w / kWarps * kOfPage + simt::thread_index()];
    }
    partial[0] = tops_[column];
    partial[1] = pass.ends ? simt::fused(total, kUnscaleWeight, tail_totals_[column]) : total;
  }

  // Values of the newest page are pairs of bf16.
  FASA_DEVICE float tail_sum(int column, int d) const {
    constexpr int kTokens = 4;  // of a load
    const auto* tail = reinterpret_cast<const simt::Word16*>(
                           desc_.tail + layout_.value_tail_offset(params_.step.layer, kv_head_)) +
                       d / 2 * (kPageTokens / kTokens);
    // Later slots hold no token, or one that comes later.
    const int newest = (desc_.end() - 1 + token_of(column)) % kPageTokens;
    const float* weights = tail_weights_ + column * kPageTokens;
    float sum = 0;
    FASA_UNROLL_8
    for (int t = 0; t <= newest; t += kTokens) {
      const simt::Word16 pairs = tail[t / kTokens];
      FASA_UNROLL
      for (int i = 0; i < kTokens; ++i) {
        const uint32_t bits = d % 2 == 0 ? pairs.words[i] << 16 : pairs.words[i] & 0xffff0000u;
        if (t + i <= newest) sum = simt::fused(weights[t + i], simt::float_of(bits), sum);
      }
    }
    return sum;
  }

  const AttendParams& params_;
  const CacheLayout& layout_;
  const LowBitPages& pages_;
  const int kv_head_;
  const int64_t codes_at_;  // in a slice block
  const int64_t base_at_;
  const int heads_;    // of a token
  const int columns_;  // heads of all tokens, one token after the other
  const int count_;    // pages
  const int64_t first_query_;
  const SequenceDesc& desc_;   // the first token's
  float* const eighths_;       // [64]
  float* const warp_totals_;   // [warps][kColumns], of the pass
  float* const tops_;          // [columns]
  float* const tail_totals_;   // [columns]
  float* const tail_weights_;  // [columns][kPageTokens]
  float* const sums_;          // [warps], LowBitSums, of the pass
};

}  // namespace fasa::cuda
