// Shared memory that the scorers of a page (page_scorer_inl.h) read and write.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/select/scorer_layout.h"
#include "kernels/cuda/simt.h"
#include "kernels/params.h"
#include "kernels/slice_codec_inl.h"

namespace fasa::cuda {

struct ScorerMemory {
  ScorerLayout layout;
  SliceFormat format;
  int dims;        // scored dimensions of the slice
  float of_words;  // 1 / words of a token's codes of these dimensions
  float* queries;  // of the block, at ScorerLayout's start
  float* mine;     // of this warp

  FASA_DEVICE static ScorerMemory of(const SelectParams& params, const ScorerLayout& layout,
                                     std::byte* memory) {
    const SliceFormat& format = params.step.layout.slice;
    auto* queries = reinterpret_cast<float*>(memory);
    const int dims = format.prefix(params.score_dims).dims;
    return {layout,  format,
            dims,    1.0f / static_cast<float>(SliceFormat{format.dtype, dims}.groups()),
            queries, queries + layout.warps_at() + simt::warp() * layout.warp_floats()};
  }

  // Loads the queries in slice order: of the first token of `sequences`, then of those scored
  // together with it, zero for one that takes no part. Each head is scaled by a power of two so
  // that its largest element is in [1, 2); scores are scaled back. Zero beyond the scored
  // dimensions.
  FASA_DEVICE void load_queries(const SelectParams& params, const SequenceDesc* sequences,
                                int kv_head) const {
    const int group = params.step.layout.gqa_group;
    const int16_t* order = params.step.slice_dims + kv_head * format.dims;
    if (simt::thread_index() == 0) *spoilt() = 0;
    simt::sync_block();
    for (int h = simt::warp(); h < layout.queries; h += simt::block_warps()) {
      const int token = h / group;
      const SequenceDesc& sequence = sequences[token];
      const bool some = sequence.mode == StepMode::kDecode;
      const int64_t at =
          some ? params.q.offset(sequence.first_token, kv_head * group + h % group) : 0;
      uint32_t largest = 0;
      for (int d = simt::lane(); d < layout.stride(); d += simt::kWarpThreads) {
        float& value = query(h, d);
        value = some && d < dims ? load(params.q.dtype, params.q.data, at + order[d]) : 0.0f;
        const uint32_t size = simt::bits_of(value) & 0x7fffffffu;
        largest = largest < size ? size : largest;
      }
      largest = simt::warp_max(largest);
      const uint32_t exponent = largest >> 23;
      if (exponent == 255 && simt::lane() == 0) simt::atomic_or(spoilt(), 1u << token);
      const uint32_t biased = largest == 0 || exponent == 255 ? 127
                              : exponent == 0                 ? 1
                              : exponent < 253                ? exponent
                                                              : 253;
      for (int d = simt::lane(); d < layout.stride(); d += simt::kWarpThreads) {
        query(h, d) *= simt::float_of((254 - biased) << 23);
      }
      if (simt::lane() == 0) queries[layout.unscale_at() + h] = simt::float_of(biased << 23);
    }
    for (int j = simt::thread_index(); j < 64; j += simt::block_threads()) {
      queries[layout.eighths_at() + j] = codec::scale_of_step(-j);
    }
  }

  // A bit for each token: some element of its queries is not finite. Read it after a barrier.
  FASA_DEVICE uint32_t* spoilt() const {
    return reinterpret_cast<uint32_t*>(queries + layout.unscale_at() + layout.queries);
  }
  FASA_DEVICE float unscale(int head) const { return queries[layout.unscale_at() + head]; }
  FASA_DEVICE const float* eighths() const { return queries + layout.eighths_at(); }
  FASA_DEVICE uint32_t* weights() const {
    return reinterpret_cast<uint32_t*>(mine + layout.weights_at());
  }
  FASA_DEVICE float* offsets() const { return mine + layout.offsets_at(); }
  // A head's scores, [kScoreStride].
  FASA_DEVICE float* scores(int head) const { return mine + head * kScoreStride; }

  // Four floats of a head's query, from a dimension that is a multiple of four.
  struct Four {
    float values[4];
  };
  FASA_DEVICE float& query(int head, int d) const {
    return queries[ScorerBanks::query(head * layout.stride() + d)];
  }
  FASA_DEVICE Four four(int head, int d) const {
    const auto words = reinterpret_cast<const simt::Word16&>(query(head, d));
    return {{simt::float_of(words.words[0]), simt::float_of(words.words[1]),
             simt::float_of(words.words[2]), simt::float_of(words.words[3])}};
  }
};

}  // namespace fasa::cuda
