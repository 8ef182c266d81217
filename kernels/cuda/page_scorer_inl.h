// Scores of one slice page by one warp, for the query heads of a KV head, S = Σ q k over the slice,
// and ALiBi's part where there are slopes; those of tokens that are taken together, their mean. A
// page's scores are the same bits wherever they are computed.
//
//   codes  tensor cores, f16: tokens x query heads. With w = q * scale (q brought near 1 by a power
//          of two, scales relative to the page's base):
//              S = (Σ w zero + Σ f16(w) code) * base
//          Codes go in as they lie: the bits of a code, masked out of its word, are an f16 that is
//          subnormal, code * 2^(place - 24), and 2^-place goes into the weight. So unpacking is a
//          mask per two codes, and weights of 11 bits need no maximum over the page, which integer
//          products with weights of 7 bits would. Error of a weight: 2^-12, of a code: 1/2.
//   bf16, f32  fused multiply-adds, two tokens a lane: bound by the bytes read.
//   codes with a query that is not finite: one by one, so that infinities come out as they should.
//
// Instructions a warp issues for a page of 128 dimensions in int2 and four heads, estimated: 160
// for the weights, 130 to unpack, 32 products, 60 for the scores.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/mma_inl.h"
#include "kernels/cuda/simt.h"
#include "kernels/params.h"
#include "kernels/select_plan.h"
#include "kernels/slice_codec_inl.h"

namespace fasa::cuda {

inline constexpr int kMmaHeads = 8;  // query heads that one product takes

// Where a block's scorers keep what they share, in floats from the start of its shared memory:
//   query [group][stride] in slice order, unscale [group], eighths [64], then for each warp
//   scores [group][64], weights [heads][padded dims / 2] (pairs of f16), offsets [heads][groups]
struct ScorerLayout {
  int group = 1;
  int padded = 0;  // dimensions of the slice
  int warps = 1;   // that score: where heads are wide or many, not all of a block's find room

  constexpr static int64_t round(int64_t floats) { return (floats + 15) / 16 * 16; }
  constexpr int stride() const { return static_cast<int>(round(padded)); }
  constexpr int heads() const { return group < kMmaHeads ? group : kMmaHeads; }
  constexpr int64_t unscale_at() const { return int64_t{group} * stride(); }
  constexpr int64_t eighths_at() const { return unscale_at() + round(group + 1); }
  constexpr int64_t warps_at() const { return eighths_at() + 64; }
  constexpr int64_t weights_at() const { return int64_t{group} * kPageTokens; }
  constexpr int64_t offsets_at() const { return weights_at() + int64_t{heads()} * padded / 2; }
  constexpr int64_t warp_floats() const {
    return round(offsets_at() + int64_t{heads()} * padded / 4);
  }
  constexpr int64_t bytes() const {
    return (warps_at() + warps * warp_floats()) * int64_t{sizeof(float)};
  }
  // With as many warps as fit, at least one.
  constexpr ScorerLayout within(int64_t most_bytes) const {
    ScorerLayout fitting = *this;
    while (fitting.warps > 1 && fitting.bytes() > most_bytes) --fitting.warps;
    return fitting;
  }
};

class PageScorer {
 public:
  // Every thread of the block; ends with a barrier. `memory`: ScorerLayout::bytes() of shared
  // memory.
  FASA_DEVICE PageScorer(const SelectParams& params, const SequenceDesc& sequence, int kv_head,
                         const ScorerLayout& layout, std::byte* memory)
      : sequence_(sequence),
        format_(params.step.layout.slice),
        layout_(layout),
        query_(reinterpret_cast<float*>(memory)),
        mine_(query_ + layout.warps_at() + simt::warp() * layout.warp_floats()),
        slice_offset_(params.step.layout.slice_offset(params.step.layer, kv_head)),
        base_at_(params.step.layout.head_index(params.step.layer, kv_head)),
        tail_(sequence.tail + params.step.layout.tail_offset(params.step.layer, kv_head)),
        sealed_(sequence.sealed_pages()),
        dims_(params.step.layout.slice.prefix(params.score_dims).dims),
        slopes_(params.step.slopes == nullptr
                    ? nullptr
                    : params.step.slopes + int64_t{kv_head} * layout.group),
        page_tokens_(params.page_tokens) {
    const SelectPlan plan = plan_selection(params, sequence);
    first_visible_ = plan.first;
    end_visible_ = plan.end;
    load_query(params, kv_head);
    simt::sync_block();
    finite_ = query_[layout_.unscale_at() + layout_.group] == 0;
  }

  // [group][kPageTokens], of this warp; raw, not yet made finite.
  FASA_DEVICE const float* scores() const { return mine_; }
  FASA_DEVICE int group() const { return layout_.group; }
  // Warps from this one on score nothing.
  FASA_DEVICE int warps() const { return layout_.warps; }

  // The whole warp. The slice block of a sealed page is given; others are read from the tail.
  FASA_DEVICE void score(int page, const std::byte* block) const {
    simt::sync_warp();  // the last page's scores have been read
    if (page >= sealed_) {
      score_floats(tail_, format_.tail().dtype);
    } else if (!is_coded(format_.dtype)) {
      score_floats(block + slice_offset_, format_.dtype);
    } else {
      const float base = reinterpret_cast<const float*>(block)[base_at_];
      const std::byte* codes = block + slice_offset_;
      if (!finite_) {
        score_one_by_one(codes, base);
      } else if (format_.dtype == SliceDType::kInt2) {
        score_codes<2>(codes, base);
      } else if (format_.dtype == SliceDType::kInt4) {
        score_codes<4>(codes, base);
      } else {
        score_codes<8>(codes, base);
      }
    }
    simt::sync_warp();
    if (slopes_ != nullptr) add_slopes(page);
    if (page_tokens_ > 1) average(page);
  }

  // A sealed page's block; null for the tail.
  FASA_DEVICE const std::byte* block_of(int page) const {
    return page < sealed_ ? sequence_.slice_blocks[page] : nullptr;
  }

 private:
  // Into slice order; each head brought to a largest element of [1, 2) by a power of two, which is
  // taken back from the scores. Beyond the scored dimensions zero.
  FASA_DEVICE void load_query(const SelectParams& params, int kv_head) {
    const int16_t* dims = params.step.slice_dims + kv_head * format_.dims;
    float* flag = query_ + layout_.unscale_at() + layout_.group;
    if (simt::thread_index() == 0) *flag = 0;
    simt::sync_block();
    for (int h = simt::warp(); h < layout_.group; h += simt::block_warps()) {
      const int64_t at = params.q.offset(sequence_.first_token, kv_head * layout_.group + h);
      float* row = query_ + h * layout_.stride();
      uint32_t largest = 0;
      for (int d = simt::lane(); d < layout_.stride(); d += simt::kWarpThreads) {
        row[d] = d < dims_ ? load(params.q.dtype, params.q.data, at + dims[d]) : 0.0f;
        const uint32_t size = simt::bits_of(row[d]) & 0x7fffffffu;
        largest = largest < size ? size : largest;
      }
      largest = simt::warp_max(largest);
      const uint32_t exponent = largest >> 23;
      if (exponent == 255) *flag = 1;
      const uint32_t biased = largest == 0 || exponent == 255 ? 127
                              : exponent == 0                 ? 1
                              : exponent < 253                ? exponent
                                                              : 253;
      for (int d = simt::lane(); d < layout_.stride(); d += simt::kWarpThreads) {
        row[d] *= simt::float_of((254 - biased) << 23);
      }
      if (simt::lane() == 0) query_[layout_.unscale_at() + h] = simt::float_of(biased << 23);
    }
    for (int j = simt::thread_index(); j < 64; j += simt::block_threads()) {
      query_[layout_.eighths_at() + j] = codec::scale_of_step(-j);
    }
  }

  FASA_DEVICE float unscale(int head) const { return query_[layout_.unscale_at() + head]; }
  FASA_DEVICE uint32_t* weights() const {
    return reinterpret_cast<uint32_t*>(mine_ + layout_.weights_at());
  }
  FASA_DEVICE float* offsets() const { return mine_ + layout_.offsets_at(); }

  FASA_DEVICE void add_slopes(int page) const {
    const int nearest = page * kPageTokens - (sequence_.end() - 1);
    for (int i = simt::lane(); i < layout_.group * kPageTokens; i += simt::kWarpThreads) {
      const auto distance = static_cast<float>(nearest + i % kPageTokens);
      mine_[i] = simt::fused(slopes_[i / kPageTokens], distance, mine_[i]);
    }
    simt::sync_warp();
  }

  // A lane has a small page of one head.
  FASA_DEVICE void average(int page) const {
    const int parts = kPageTokens / page_tokens_;
    const int first = first_visible_ - page * kPageTokens;
    const int last = end_visible_ - page * kPageTokens;
    for (int i = simt::lane(); i < layout_.group * parts; i += simt::kWarpThreads) {
      const int from = i % parts * page_tokens_;
      const int begin = from > first ? from : first;
      const int end = from + page_tokens_ < last ? from + page_tokens_ : last;
      float* const scores = mine_ + i / parts * kPageTokens;
      float sum = 0;
      for (int t = begin; t < end; ++t) sum += scores[t];
      const float mean = sum / static_cast<float>(end - begin);
      for (int t = begin; t < end; ++t) scores[t] = mean;
    }
    simt::sync_warp();
  }

  template <int kBits>
  struct Codes {
    static constexpr int kUnit = 32 / kBits;   // dimensions of a word
    static constexpr int kPairs = kUnit / 2;   // f16 pairs of a word
    static constexpr int kPlaces = 8 / kBits;  // codes of a byte
    static constexpr float kZeroUnit = kBits == 2 ? 0.5f : kBits == 4 ? 2.0f : 32.0f;

    // Pair r holds the codes at place r % kPlaces of bytes r / kPlaces and r / kPlaces + 2.
    FASA_DEVICE static uint32_t pair(uint32_t word, int r) {
      constexpr uint32_t kMask = ((1u << kBits) - 1) * 0x00010001u;
      return (word >> (r / kPlaces * 8)) & (kMask << (r % kPlaces * kBits));
    }
    // The dimension, within the word's, of the pair's low half; of the high half two more.
    FASA_DEVICE static constexpr int dim(int r) { return r % kPlaces * 4 + r / kPlaces; }
    FASA_DEVICE static constexpr float weight_scale(int r) {
      return 1.0f / static_cast<float>(1 << (r % kPlaces * kBits));
    }
  };

  // Weights of heads [first, first + count) and the part of their scores that all tokens share, by
  // words: each lane takes some (head, word).
  template <int kBits>
  FASA_DEVICE void prepare(const std::byte* page, int first, int count, int words) const {
    using C = Codes<kBits>;
    const auto* parameters = reinterpret_cast<const uint32_t*>(page + format_.code_bytes());
    const float* eighths = query_ + layout_.eighths_at();
    for (int i = simt::lane(); i < count * words; i += simt::kWarpThreads) {
      const int head = i / words;
      const int word = i - head * words;
      const float* q = query_ + (first + head) * layout_.stride() + word * C::kUnit;
      float weight[C::kUnit];
      float offset = 0;
      FASA_UNROLL
      for (int d = 0; d < C::kUnit; d += 2) {
        const uint32_t two = parameters[(word * C::kUnit + d) / 2];
        FASA_UNROLL
        for (int odd = 0; odd < 2; ++odd) {
          const auto parameter = static_cast<int16_t>(odd == 0 ? two & 0xffffu : two >> 16);
          const float zero = static_cast<float>(parameter >> 6) * C::kZeroUnit;
          weight[d + odd] = q[d + odd] * eighths[parameter & 63];
          offset = simt::fused(weight[d + odd], zero, offset);
        }
      }
      uint32_t* packed = weights() + (head * words + word) * C::kPairs;
      FASA_UNROLL
      for (int r = 0; r < C::kPairs; ++r) {
        packed[r] = pack_f16(weight[C::dim(r)] * C::weight_scale(r),
                             weight[C::dim(r) + 2] * C::weight_scale(r));
      }
      offsets()[head * words + word] = offset;
    }
  }

  template <int kBits>
  FASA_DEVICE void score_codes(const std::byte* page, float base) const {
    for (int first = 0; first < layout_.group; first += kMmaHeads) {
      const int left = layout_.group - first;
      score_heads<kBits>(page, base, first, left < kMmaHeads ? left : kMmaHeads);
    }
  }

  // Lane (row, c) has the words [4 chunk + c] of tokens 4 row to 4 row + 3 of each half of the
  // page: all of a word's codes are its own, so that a product's inner index is (c, pair), and its
  // weights are those of head `row` and the same word.
  template <int kBits>
  FASA_DEVICE void score_heads(const std::byte* page, float base, int first, int count) const {
    using C = Codes<kBits>;
    const int words = SliceFormat{format_.dtype, dims_}.padded_dims() / C::kUnit;
    const int row = simt::lane() / 4;
    const int c = simt::lane() % 4;
    float sums[2][2][4] = {};  // [half of the page][pair of tokens]
    bool prepared = false;
    for (int chunk = 0; chunk < words; chunk += 4) {
      const int word = chunk + c;
      simt::Word16 tokens[2] = {};
      if (word < words) {
        const auto* at = reinterpret_cast<const simt::Word16*>(page + word * kPageTokens * 4);
        tokens[0] = at[row];
        tokens[1] = at[row + 8];
      }
      if (!prepared) {  // after the first loads, which it hides
        prepare<kBits>(page, first, count, words);
        simt::sync_warp();
        prepared = true;
      }
      const uint32_t* of_word = weights() + (row * words + word) * C::kPairs;
      const bool has_weights = row < count && word < words;
      FASA_UNROLL
      for (int r = 0; r < C::kPairs; r += 2) {
        const uint32_t b[2] = {has_weights ? of_word[r] : 0, has_weights ? of_word[r + 1] : 0};
        FASA_UNROLL
        for (int half = 0; half < 2; ++half) {
          FASA_UNROLL
          for (int pair = 0; pair < 2; ++pair) {
            const uint32_t even = tokens[half].words[2 * pair];
            const uint32_t odd = tokens[half].words[2 * pair + 1];
            const uint32_t a[4] = {C::pair(even, r), C::pair(odd, r), C::pair(even, r + 1),
                                   C::pair(odd, r + 1)};
            mma_f16(sums[half][pair], a, b);
          }
        }
      }
    }
    write_sums(sums, base, first, count, words);
  }

  FASA_DEVICE void write_sums(const float (&sums)[2][2][4], float base, int first, int count,
                              int words) const {
    const int row = simt::lane() / 4;
    for (int which = 0; which < 2; ++which) {
      const int head = simt::lane() % 4 * 2 + which;
      if (head >= count) continue;
      float offset = 0;
      for (int word = 0; word < words; ++word) offset += offsets()[head * words + word];
      const float back = unscale(first + head);
      float* out = mine_ + (first + head) * kPageTokens + 4 * row;
      FASA_UNROLL
      for (int half = 0; half < 2; ++half) {
        FASA_UNROLL
        for (int pair = 0; pair < 2; ++pair) {
          FASA_UNROLL
          for (int odd = 0; odd < 2; ++odd) {
            const float sum = sums[half][pair][2 * odd + which] * 16777216.0f;
            out[half * 32 + pair * 2 + odd] = (offset + sum) * base * back;
          }
        }
      }
    }
    simt::sync_warp();  // before other heads' weights take these ones' place
  }

  FASA_DEVICE void score_floats(const std::byte* page, SliceDType dtype) const {
    for (int first = 0; first < layout_.group;) {
      const int left = layout_.group - first;
      if (left >= 4) {
        score_float_heads<4>(page, dtype, first);
        first += 4;
      } else if (left >= 2) {
        score_float_heads<2>(page, dtype, first);
        first += 2;
      } else {
        score_float_heads<1>(page, dtype, first++);
      }
    }
  }

  // Lane l has tokens 2 l and 2 l + 1.
  template <int kHeads>
  FASA_DEVICE void score_float_heads(const std::byte* page, SliceDType dtype, int first) const {
    struct alignas(8) Two {
      uint32_t tokens[2];
    };
    constexpr int kAhead = 8;
    float sums[kHeads][2] = {};
    const bool pairs = dtype == SliceDType::kBF16;
    const int steps = pairs ? (dims_ + 1) / 2 : dims_;
    const float* q = query_ + first * layout_.stride();
    const auto* at = reinterpret_cast<const Two*>(page) + simt::lane();
    for (int begin = 0; begin < steps; begin += kAhead) {
      Two words[kAhead];
      FASA_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        words[i] = begin + i < steps ? at[(begin + i) * kPageTokens / 2] : Two{};
      }
      FASA_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (begin + i >= steps) break;
        FASA_UNROLL
        for (int token = 0; token < 2; ++token) {
          const uint32_t word = words[i].tokens[token];
          FASA_UNROLL
          for (int h = 0; h < kHeads; ++h) {
            float& sum = sums[h][token];
            const float* of_head = q + h * layout_.stride();
            if (pairs) {
              const int d = 2 * (begin + i);
              sum = simt::fused(of_head[d], simt::float_of(word << 16), sum);
              if (d + 1 < dims_) {
                sum = simt::fused(of_head[d + 1], simt::float_of(word & 0xffff0000u), sum);
              }
            } else {
              sum = simt::fused(of_head[begin + i], simt::float_of(word), sum);
            }
          }
        }
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      const float back = unscale(first + h);
      for (int token = 0; token < 2; ++token) {
        mine_[(first + h) * kPageTokens + 2 * simt::lane() + token] = sums[h][token] * back;
      }
    }
  }

  FASA_DEVICE void score_one_by_one(const std::byte* page, float base) const {
    const int bits = slice_bits(format_.dtype);
    const int unit = 32 / bits;
    const auto* parameters = reinterpret_cast<const uint16_t*>(page + format_.code_bytes());
    const float zero_unit = static_cast<float>(1 << bits) / 8;
    for (int i = simt::lane(); i < layout_.group * kPageTokens; i += simt::kWarpThreads) {
      const int head = i / kPageTokens;
      const int token = i % kPageTokens;
      float sum = 0;
      for (int d = 0; d < dims_; ++d) {
        const auto byte = static_cast<uint32_t>(page[(d / unit * kPageTokens + token) * 4 + d % 4]);
        const uint32_t code = byte >> (d % unit / 4 * bits) & ((1u << bits) - 1);
        const auto parameter = static_cast<int16_t>(parameters[d]);
        const float value =
            base * query_[layout_.eighths_at() + (parameter & 63)] *
            (static_cast<float>(parameter >> 6) * zero_unit + static_cast<float>(code));
        sum = simt::fused(query_[head * layout_.stride() + d], value, sum);
      }
      mine_[i] = sum * unscale(head);
    }
  }

  const SequenceDesc& sequence_;
  const SliceFormat format_;
  const ScorerLayout layout_;
  float* const query_;
  float* const mine_;
  const int64_t slice_offset_;
  const int64_t base_at_;
  const std::byte* const tail_;
  const int sealed_;
  const int dims_;
  const float* const slopes_;  // [group], null = none
  const int page_tokens_;
  int first_visible_ = 0;
  int end_visible_ = 0;
  bool finite_ = true;
};

}  // namespace fasa::cuda
