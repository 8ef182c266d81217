// Scores of one slice page by one warp, for the query heads of a KV head, S = Σ q k over the slice,
// and ALiBi's part where there are slopes; those of tokens that are taken together, their mean;
// then the cap. A page's scores are the same bits wherever they are computed.
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
// What lanes read of shared memory at once lies in different banks, 16 bytes a lane: queries and
// weights are kept with their units exchanged by a few bits of their place (ScorerBanks), scores of
// a head kScoreStride apart. tests/simt/banks_test.cc counts.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/math_inl.h"
#include "kernels/cuda/mma_inl.h"
#include "kernels/cuda/simt.h"
#include "kernels/params.h"
#include "kernels/select_plan.h"
#include "kernels/slice_codec_inl.h"

namespace fasa::cuda {

inline constexpr int kMmaHeads = 8;                   // query heads that one product takes
inline constexpr int kScoreStride = kPageTokens + 4;  // floats from a head's scores to the next's

// Where things lie in shared memory, so that lanes that read at once meet in no bank: a bijection
// within aligned blocks, which costs no room.
struct ScorerBanks {
  // Float `at` of the queries, head * stride + dimension in slice order. Eight words side by side,
  // or four of two heads, are read at once, four floats of each.
  FASA_DEVICE static constexpr int query(int at) { return at ^ ((at >> 5 & 3) << 2); }

  // The vector of a word's weights: 16 bytes, of which a word of int2 has two, int4 one; 8 bytes in
  // int8. Read by four words of two heads (int8: four heads) at once.
  template <int kBits>
  FASA_DEVICE static constexpr int weights(int vector) {
    if constexpr (kBits == 2) {
      return vector ^ ((vector >> 3 ^ vector >> 4) & 1);
    } else if constexpr (kBits == 4) {
      return vector ^ ((vector >> 3 ^ vector >> 4) & 1) << 2;
    } else {
      return vector ^ ((vector >> 4 ^ vector >> 5) & 3) << 2;
    }
  }
};

// Where a block's scorers keep what they share, in floats from the start of its shared memory:
//   query [group][stride] in slice order, unscale [group], eighths [64], then for each warp
//   scores [group][kScoreStride], weights [heads][padded dims / 2] (pairs of f16), offsets
//   [heads][groups]
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
  constexpr int64_t weights_at() const { return int64_t{group} * kScoreStride; }
  // Whole blocks of what ScorerBanks exchanges.
  constexpr int64_t weight_words() const { return align_up(int64_t{heads()} * padded / 2, 32); }
  constexpr int64_t offsets_at() const { return weights_at() + weight_words(); }
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
        of_words_(1.0f / static_cast<float>(SliceFormat{format_.dtype, dims_}.groups())),
        slopes_(params.step.slopes == nullptr
                    ? nullptr
                    : params.step.slopes + int64_t{kv_head} * layout.group),
        score_cap_(params.step.score_cap),
        page_tokens_(params.page_tokens) {
    const SelectPlan plan = plan_selection(params, sequence);
    first_visible_ = plan.first;
    end_visible_ = plan.end;
    load_query(params, kv_head);
    simt::sync_block();
    finite_ = query_[layout_.unscale_at() + layout_.group] == 0;
  }

  // [group][kScoreStride], of this warp; raw, not yet made finite.
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
    if (score_cap_ > 0) cap_scores();
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
      uint32_t largest = 0;
      for (int d = simt::lane(); d < layout_.stride(); d += simt::kWarpThreads) {
        float& value = query(h, d);
        value = d < dims_ ? load(params.q.dtype, params.q.data, at + dims[d]) : 0.0f;
        const uint32_t size = simt::bits_of(value) & 0x7fffffffu;
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
        query(h, d) *= simt::float_of((254 - biased) << 23);
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
      float& score = mine_[i / kPageTokens * kScoreStride + i % kPageTokens];
      score = simt::fused(slopes_[i / kPageTokens], distance, score);
    }
    simt::sync_warp();
  }

  FASA_DEVICE void cap_scores() const {
    for (int i = simt::lane(); i < layout_.group * kPageTokens; i += simt::kWarpThreads) {
      float& score = mine_[i / kPageTokens * kScoreStride + i % kPageTokens];
      score = soft_capped(score, score_cap_);
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
      float* const scores = mine_ + i / parts * kScoreStride;
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

  // Four floats of a head's query, from a dimension that is a multiple of four.
  struct Four {
    float values[4];
  };
  FASA_DEVICE float& query(int head, int d) const {
    return query_[ScorerBanks::query(head * layout_.stride() + d)];
  }
  FASA_DEVICE Four four(int head, int d) const {
    const auto words = reinterpret_cast<const simt::Word16&>(query(head, d));
    return {{simt::float_of(words.words[0]), simt::float_of(words.words[1]),
             simt::float_of(words.words[2]), simt::float_of(words.words[3])}};
  }

  // A word's weights, in as few accesses as there are vectors.
  template <int kBits>
  struct Weights {
    static constexpr int kPairs = Codes<kBits>::kPairs;
    static constexpr int kEach = kPairs < 4 ? kPairs : 4;  // pairs of a vector
    struct alignas(4 * kEach) Vector {
      uint32_t pairs[kEach];
    };
    uint32_t pairs[kPairs];

    FASA_DEVICE static Vector& at(uint32_t* weights, int word, int i) {
      return reinterpret_cast<Vector*>(
          weights)[ScorerBanks::weights<kBits>(word * (kPairs / kEach) + i)];
    }
    FASA_DEVICE void store(uint32_t* weights, int word) const {
      FASA_UNROLL
      for (int i = 0; i < kPairs / kEach; ++i) {
        Vector vector;
        FASA_UNROLL
        for (int r = 0; r < kEach; ++r) vector.pairs[r] = pairs[i * kEach + r];
        at(weights, word, i) = vector;
      }
    }
    FASA_DEVICE void load(uint32_t* weights, int word) {
      FASA_UNROLL
      for (int i = 0; i < kPairs / kEach; ++i) {
        const Vector vector = at(weights, word, i);
        FASA_UNROLL
        for (int r = 0; r < kEach; ++r) pairs[i * kEach + r] = vector.pairs[r];
      }
    }
  };

  // Weights of heads [first, first + count) and the part of their scores that all tokens share, by
  // words: each lane takes some (head, word).
  template <int kBits>
  FASA_DEVICE void prepare(const std::byte* page, int first, int count, int words) const {
    using C = Codes<kBits>;
    const std::byte* parameters = page + format_.code_bytes();
    const float* eighths = query_ + layout_.eighths_at();
    constexpr int kAtOnce = C::kUnit < 8 ? C::kUnit : 8;  // dimensions whose parameters are read
    struct alignas(2 * kAtOnce) Parameters {
      uint32_t pairs[kAtOnce / 2];
    };
    for (int i = simt::lane(); i < count * words; i += simt::kWarpThreads) {
      // i / words, half a word away from any rounding.
      const int head = static_cast<int>((static_cast<float>(i) + 0.5f) * of_words_);
      const int word = i - head * words;
      float weight[C::kUnit];
      float offset = 0;
      FASA_UNROLL
      for (int begin = 0; begin < C::kUnit; begin += kAtOnce) {
        const Parameters read =
            reinterpret_cast<const Parameters*>(parameters)[(word * C::kUnit + begin) / kAtOnce];
        FASA_UNROLL
        for (int d = begin; d < begin + kAtOnce; d += 4) {
          const Four of_query = four(first + head, word * C::kUnit + d);
          FASA_UNROLL
          for (int j = 0; j < 4; ++j) {
            const uint32_t two = read.pairs[(d - begin + j) / 2];
            const auto parameter = static_cast<int16_t>(j % 2 == 0 ? two & 0xffffu : two >> 16);
            const float zero = static_cast<float>(parameter >> 6) * C::kZeroUnit;
            weight[d + j] = of_query.values[j] * eighths[parameter & 63];
            offset = simt::fused(weight[d + j], zero, offset);
          }
        }
      }
      Weights<kBits> packed;
      FASA_UNROLL
      for (int r = 0; r < C::kPairs; ++r) {
        packed.pairs[r] = pack_f16(weight[C::dim(r)] * C::weight_scale(r),
                                   weight[C::dim(r) + 2] * C::weight_scale(r));
      }
      packed.store(weights(), i);
      offsets()[i] = offset;
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
      Weights<kBits> of_word = {};
      if (row < count && word < words) of_word.load(weights(), row * words + word);
      FASA_UNROLL
      for (int r = 0; r < C::kPairs; r += 2) {
        const uint32_t b[2] = {of_word.pairs[r], of_word.pairs[r + 1]};
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
      float* out = mine_ + (first + head) * kScoreStride + 4 * row;
      FASA_UNROLL
      for (int half = 0; half < 2; ++half) {
        simt::Word16 four_tokens;
        FASA_UNROLL
        for (int i = 0; i < 4; ++i) {  // pair i / 2, odd i % 2
          const float sum = sums[half][i / 2][2 * (i % 2) + which] * 16777216.0f;
          four_tokens.words[i] = simt::bits_of((offset + sum) * base * back);
        }
        *reinterpret_cast<simt::Word16*>(out + half * 32) = four_tokens;
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

  // Lane l has tokens 2 l and 2 l + 1. Four dimensions of a query are read at a time.
  template <int kHeads>
  FASA_DEVICE void score_float_heads(const std::byte* page, SliceDType dtype, int first) const {
    struct alignas(8) Two {
      uint32_t tokens[2];
    };
    constexpr int kAhead = 8;
    float sums[kHeads][2] = {};
    const bool pairs = dtype == SliceDType::kBF16;
    const int steps = pairs ? (dims_ + 1) / 2 : dims_;
    const auto* at = reinterpret_cast<const Two*>(page) + simt::lane();
    for (int begin = 0; begin < steps; begin += kAhead) {
      Two words[kAhead];
      FASA_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        words[i] = begin + i < steps ? at[(begin + i) * kPageTokens / 2] : Two{};
      }
      if (pairs) {
        FASA_UNROLL
        for (int i = 0; i < kAhead; i += 2) {
          const uint32_t codes[2][4] = {
              {words[i].tokens[0] << 16, words[i].tokens[0] & 0xffff0000u,
               words[i + 1].tokens[0] << 16, words[i + 1].tokens[0] & 0xffff0000u},
              {words[i].tokens[1] << 16, words[i].tokens[1] & 0xffff0000u,
               words[i + 1].tokens[1] << 16, words[i + 1].tokens[1] & 0xffff0000u}};
          add_four(first, 2 * (begin + i), codes, sums);
        }
      } else {
        FASA_UNROLL
        for (int i = 0; i < kAhead; i += 4) {
          uint32_t codes[2][4];
          FASA_UNROLL
          for (int j = 0; j < 4; ++j) {
            codes[0][j] = words[i + j].tokens[0];
            codes[1][j] = words[i + j].tokens[1];
          }
          add_four(first, begin + i, codes, sums);
        }
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      const float back = unscale(first + h);
      for (int token = 0; token < 2; ++token) {
        mine_[(first + h) * kScoreStride + 2 * simt::lane() + token] = sums[h][token] * back;
      }
    }
  }

  // Dimensions d to d + 3 of two tokens, as far as they are scored, for heads from `first` on.
  template <int kHeads>
  FASA_DEVICE void add_four(int first, int d, const uint32_t (&values)[2][4],
                            float (&sums)[kHeads][2]) const {
    if (d >= dims_) return;
    FASA_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      const Four of_query = four(first + h, d);
      FASA_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (d + j >= dims_) break;
        FASA_UNROLL
        for (int token = 0; token < 2; ++token) {
          sums[h][token] =
              simt::fused(of_query.values[j], simt::float_of(values[token][j]), sums[h][token]);
        }
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
        sum = simt::fused(query(head, d), value, sum);
      }
      mine_[head * kScoreStride + token] = sum * unscale(head);
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
  const float of_words_;       // 1 / words of a token's scored codes
  const float* const slopes_;  // [group], null = none
  const float score_cap_;      // 0 = none
  const int page_tokens_;
  int first_visible_ = 0;
  int end_visible_ = 0;
  bool finite_ = true;
};

}  // namespace fasa::cuda
