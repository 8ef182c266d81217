// Folds the partials of tiles into a query head's state, in tile order: a block per query head, a
// thread per element of the value. A warp's lanes compute the weights of 32 merges together,
// because a running maximum does not depend on order; the values of the next 32 tiles arrive
// meanwhile. Warps work independently.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/softmax_inl.h"
#include "kernels/params.h"

namespace fasa::cuda {

// The last step of a query head: state to output.
FASA_DEVICE void write_output(const AttendParams& params, int token, int query, float top,
                              float sum, int d, float value) {
  const int64_t at = params.out.offset(token, query) + d;
  store(params.out.dtype, params.out.data, at, value / divisor_of(top, sum));
  if (params.lse != nullptr && d == 0) {
    params.lse[int64_t{token} * params.step.layout.query_heads() + query] = log_sum_exp(top, sum);
  }
}

constexpr int tiles_of(int tokens) { return (tokens + kTileTokens - 1) / kTileTokens; }
FASA_DEVICE int wave_tiles(const AttendParams& params) {
  return tiles_of(params.end - params.begin);
}
// The largest number of low-bit tiles, or of blocks of pages, of a head.
constexpr int low_bit_parts(const AttendParams& params) {
  return tiles_of(params.low_bit.capacity) + low_bit_blocks(params.low_bit_pages.capacity);
}

// The partials of one query head; those of the low-bit set come last.
struct HeadPartials {
  const float* tiles;
  const float* low_bit;
  int64_t width;  // floats of each
  int count;
  int total;  // including the low-bit set's

  FASA_DEVICE const float* at(int tile) const {
    return tile < count ? tiles + tile * width : low_bit + (tile - count) * width;
  }
};

// A warp's part of a head's fold: its lanes' elements of the value.
class WarpFold {
 public:
  static constexpr int kChunk = simt::kWarpThreads;  // tiles at a time: one merge per lane
  // Shared memory per warp: values of two chunks, merges of one.
  static constexpr int64_t kWarpFloats = (2 * simt::kWarpThreads + 4) * int64_t{kChunk};

  float top;
  float sum;
  float value;

  // Element d, if `owns`; `shared`: kWarpFloats, 16-byte aligned.
  FASA_DEVICE void run(const HeadPartials& partials, int d, bool owns, float* shared) {
    auto* const merges = reinterpret_cast<Merge*>(shared);
    float* const values = shared + sizeof(Merge) / sizeof(float) * kChunk;
    bring(partials, 0, d, owns, values);
    for (int first = 0; first < partials.total; first += kChunk) {
      const int half = first / kChunk % 2;
      bring(partials, first + kChunk, d, owns, values + (1 - half) * kHalf);
      find_merges(partials, first, merges);
      simt::wait_copies<1>();
      const int left = partials.total - first;
      merge(values + half * kHalf, merges, left < kChunk ? left : kChunk);
      simt::sync_warp();
    }
  }

 private:
  static constexpr int kHalf = kChunk * simt::kWarpThreads;
  static constexpr float kNot = -1;  // no weight of a SoftmaxMerge

  struct alignas(16) Merge {
    float mine;    // kNot: the state is empty, the tile is taken as it is
    float theirs;  // kNot: the tile is empty
    float sum;
    float padding;
  };

  // Copies element d of the tiles from `first` on. A lane reads only what it has copied itself.
  FASA_DEVICE static void bring(const HeadPartials& partials, int first, int d, bool owns,
                                float* values) {
    const int left = partials.total - first;
    const int count = !owns ? 0 : left < kChunk ? left : kChunk;
    FASA_UNROLL_8
    for (int i = 0; i < count; ++i) {
      simt::copy_async(values + i * simt::kWarpThreads + simt::lane(),
                       partials.at(first + i) + kStateHeader + d);
    }
    simt::commit_copies();
  }

  // The maximum of two; NaN if either is NaN.
  FASA_DEVICE static float later_top(float before, float tile) {
    if (before != before) return before;
    return before < tile || tile != tile ? tile : before;
  }

  // The merges of tiles [first, first + kChunk), one per lane, and the maximum after all of them.
  FASA_DEVICE void find_merges(const HeadPartials& partials, int first, Merge* merges) {
    const int tile = first + simt::lane();
    const bool some = tile < partials.total;
    const float* header = partials.at(some ? tile : 0);
    const float theirs = some ? header[0] : no_maximum();
    const float their_sum = some ? header[1] : 0.0f;
    float after = theirs;  // of this chunk alone
    for (int lanes = 1; lanes < simt::kWarpThreads; lanes *= 2) {
      const bool has = simt::lane() >= lanes;
      const float before = simt::shuffle(after, has ? simt::lane() - lanes : simt::lane());
      if (has) after = later_top(before, after);
    }
    const float previous = simt::shuffle(after, simt::lane() == 0 ? 0 : simt::lane() - 1);
    const float before = simt::lane() == 0 ? top : later_top(top, previous);
    const SoftmaxMerge merge = SoftmaxMerge::of(before, theirs);
    merges[simt::lane()] = {merge.kind == SoftmaxMerge::Kind::kTake ? kNot : merge.mine,
                            merge.kind == SoftmaxMerge::Kind::kKeep ? kNot : merge.theirs,
                            their_sum, 0};
    top = later_top(top, simt::shuffle(after, simt::kWarpThreads - 1));
    simt::sync_warp();
  }

  FASA_DEVICE void merge(const float* values, const Merge* merges, int count) {
    FASA_UNROLL_8
    for (int i = 0; i < count; ++i) {
      const Merge merge = merges[i];
      const float theirs = values[i * simt::kWarpThreads + simt::lane()];
      if (merge.theirs == kNot) continue;
      if (merge.mine == kNot) {
        sum = merge.sum;
        value = theirs;
        continue;
      }
      sum = sum * merge.mine + merge.sum * merge.theirs;
      value = value * merge.mine + theirs * merge.theirs;
    }
  }
};

// Folds partials into the state. Blocks: query heads, sequences.
struct AttendFoldKernel {
  static constexpr const char* kName = "attend";
  static constexpr int kThreads = 128;
  static constexpr int64_t kSharedBytes =
      kThreads / simt::kWarpThreads * WarpFold::kWarpFloats * int64_t{sizeof(float)};

  AttendParams params;

  FASA_DEVICE void operator()() const {
    const CacheLayout& layout = params.step.layout;
    const int query = params.step.first_head() * layout.gqa_group + simt::block_x();
    const SequenceDesc& desc = params.step.sequences[simt::block_y()];
    if (desc.mode != StepMode::kDecode) return;
    const int dims = layout.row.value_dim;
    const int64_t width = kStateHeader + dims;
    const int64_t at = int64_t{simt::block_y()} * layout.query_heads() + query;
    const int head = simt::block_y() * layout.kv_heads + query / layout.gqa_group;
    const HeadPartials partials = partials_of(desc, head, at, width);
    float* state = params.state == nullptr ? nullptr : params.state + at * width;
    float* const shared =
        reinterpret_cast<float*>(simt::shared_memory()) + simt::warp() * WarpFold::kWarpFloats;
    // All threads have read the state before any writes it.
    const float first_top = params.first_wave ? no_maximum() : state[0];
    const float first_sum = params.first_wave ? 0.0f : state[1];
    simt::sync_block();
    for (int first = 0; first < dims; first += kThreads) {
      const int d = first + simt::thread_index();
      const bool owns = d < dims;
      WarpFold fold{first_top, first_sum,
                    params.first_wave || !owns ? 0.0f : state[kStateHeader + d]};
      fold.run(partials, d, owns, shared);
      if (!owns) continue;
      if (params.last_wave) {
        write_output(params, desc.first_token, query, fold.top, fold.sum, d, fold.value);
        continue;
      }
      state[kStateHeader + d] = fold.value;
      if (d == 0) state[0] = fold.top, state[1] = fold.sum;
    }
  }

 private:
  FASA_DEVICE HeadPartials partials_of(const SequenceDesc& desc, int head, int64_t at,
                                       int64_t width) const {
    int seen = desc.end();
    if (params.selected_sizes != nullptr) {
      seen = params.selected_sizes[head];
    } else if (params.window > 0 && seen > params.window) {
      seen = params.window;
    }
    const int end = params.end < seen ? params.end : seen;
    const int count = end > params.begin ? tiles_of(end - params.begin) : 0;
    int low_bit = params.low_bit.capacity == 0 ? 0 : tiles_of(params.low_bit.sizes[head]);
    if (params.low_bit_pages.capacity > 0)
      low_bit += low_bit_blocks(params.low_bit_pages.counts[head]);
    return {params.partials + at * wave_tiles(params) * width,
            params.low_bit_partials + at * low_bit_parts(params) * width, width, count,
            count + low_bit};
  }
};

}  // namespace fasa::cuda
