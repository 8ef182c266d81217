// A tile of a low-bit set: scores are given; values are read from codes (slice_format.h, by token),
// or from the tail in bf16 if their page is not sealed yet. A block processes all query heads of
// its part of the GQA group: threads look up the tile's tokens, one warp per head turns scores into
// weights, then every thread sums two dimensions of the values for two heads.
#pragma once

#include "kernels/code_width.h"
#include "kernels/cuda/rows_inl.h"
#include "kernels/cuda/weigh_inl.h"
#include "kernels/slice_codec_inl.h"

namespace fasa::cuda {

class LowBitTile {
 public:
  static constexpr int kThreads = 128;

  // Floats of shared memory: the tokens, 2^(-i / 8) for i < 64, scores.
  static constexpr int64_t shared_floats(int heads) {
    return kTileTokens * int64_t{sizeof(Token) / sizeof(float)} + 64 + int64_t{heads} * kTileTokens;
  }
  FASA_DEVICE static int tiles(const AttendParams& params, int head) {
    const int32_t size = params.low_bit.capacity == 0 ? 0 : params.low_bit.sizes[head];
    return (size + kTileTokens - 1) / kTileTokens;
  }

  // `head`: sequence x kv_heads + kv_head; `first_query`: in the GQA group.
  FASA_DEVICE LowBitTile(const AttendParams& params, int head, int first_query, int heads,
                         float* shared)
      : params_(params),
        layout_(params.step.layout),
        head_(head),
        first_query_(first_query),
        heads_(heads),
        desc_(params.step.sequences[head / layout_.kv_heads]),
        tokens_(reinterpret_cast<Token*>(shared)),
        eighths_(shared + kTileTokens * sizeof(Token) / sizeof(float)),
        scores_(eighths_ + 64) {}

  // partial(heads): f32 [2 + value_dim] of each, `stride` floats apart. All threads of the block;
  // contains barriers but does not end with one.
  FASA_DEVICE void compute(int tile, float* partial, int64_t stride) const {
    const LowBitSet& low_bit = params_.low_bit;
    const int first = tile * kTileTokens;
    const int left = low_bit.sizes[head_] - first;
    const int count = left < kTileTokens ? left : kTileTokens;
    if (simt::thread_index() < count) {
      tokens_[simt::thread_index()] = token_at(
          low_bit.positions[int64_t{head_} * low_bit.capacity + first + simt::thread_index()]);
    }
    for (int i = simt::thread_index(); i < 64; i += kThreads) {
      eighths_[i] = codec::scale_of_step(-i);
    }
    for (int i = simt::thread_index(); i < heads_ * kTileTokens; i += kThreads) {
      const int64_t query = int64_t{head_} * layout_.gqa_group + first_query_ + i / kTileTokens;
      const int t = i % kTileTokens;
      if (t < count)
        scores_[i] = low_bit.scores[query * low_bit.capacity + first + t] * params_.scale;
    }
    simt::sync_block();
    weigh_scores<kThreads>(scores_, heads_, count, partial, stride);
    simt::sync_block();
    with_code_width(slice_bits(layout_.values.dtype), AllCodeWidths(), [&]<int kBits>() {
      const auto value_of = [this](int i, int pair) { return value<kBits>(tokens_[i], pair); };
      sum_weighed<kThreads>(scores_, heads_, count, layout_.values.dims, value_of, partial, stride);
    });
  }

 private:
  // Location of a token's values.
  struct Token {
    const uint32_t* words;       // of its codes; in the tail, its pairs begin here
    const uint32_t* parameters;  // its page's, in pairs; null: the tail
    float base;
    float padding;
  };

  FASA_DEVICE Token token_at(int32_t position) const {
    const SliceFormat& format = layout_.values;
    const int page = position / kPageTokens;
    const int slot = position % kPageTokens;
    const int kv_head = head_ % layout_.kv_heads;
    const int layer = params_.step.layer;
    if (page >= desc_.sealed_pages()) {
      const std::byte* tail = desc_.tail + layout_.value_tail_offset(layer, kv_head);
      return {reinterpret_cast<const uint32_t*>(tail) + slot, nullptr, 1, 0};
    }
    const std::byte* block = desc_.slice_blocks[page];
    const std::byte* codes = block + layout_.value_offset(layer, kv_head);
    return {reinterpret_cast<const uint32_t*>(codes) + format.word_at(0, slot),
            reinterpret_cast<const uint32_t*>(codes + format.code_bytes()),
            *reinterpret_cast<const float*>(block + layout_.value_base_offset(layer, kv_head)), 0};
  }

  // scale * (zero + code) of the dimension whose parameter is the low half of `parameter`.
  template <int kBits>
  FASA_DEVICE float decoded(uint32_t parameter, uint32_t word, int d, float base) const {
    constexpr int kUnit = 32 / kBits;
    const auto half = static_cast<int16_t>(parameter & 0xffffu);
    const float scale = eighths_[half & 63] * base;
    const float offset = scale * (static_cast<float>(half >> 6) * kZeroUnit<kBits>);
    const uint32_t code = word >> (d % 4 * 8 + d % kUnit / 4 * kBits) & ((1u << kBits) - 1);
    return simt::fused(static_cast<float>(code), scale, offset);
  }
  // Dimensions 2 x `pair` and the next one.
  template <int kBits>
  FASA_DEVICE Pair value(const Token& token, int pair) const {
    if (token.parameters == nullptr) {
      const uint32_t word = token.words[pair * kPageTokens];
      return {simt::float_of(word << 16), simt::float_of(word & 0xffff0000u)};
    }
    const uint32_t word = token.words[2 * pair / (32 / kBits)];
    const uint32_t parameters = token.parameters[pair];
    return {decoded<kBits>(parameters, word, 2 * pair, token.base),
            decoded<kBits>(parameters >> 16, word, 2 * pair + 1, token.base)};
  }

  const AttendParams& params_;
  const CacheLayout& layout_;
  const int head_;
  const int first_query_;
  const int heads_;
  const SequenceDesc& desc_;
  Token* const tokens_;   // [kTileTokens]
  float* const eighths_;  // [64]
  float* const scores_;   // [heads][kTileTokens]
};

}  // namespace fasa::cuda
