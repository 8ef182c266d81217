// Exact causal attention of a prefill on tensor cores, for rows of bf16, f16 or codes, with keys
// and values of kDim. A block takes kRows rows (query tokens times the query heads of a GQA group),
// a warp sixteen of them, whose queries and outputs stay in its registers. Keys and values come to
// shared memory tile by tile (prefill_stage_inl.h), the next one while the block works on one:
// there is one barrier for each, so that warps drift apart and one's products run during another's
// softmax.
//
// If queries and outputs have the rows' type, weights are rounded to it. Otherwise a weight is the
// sum of two numbers of that type (the rounded weight and its remainder), exact to 2^-16 or better,
// and so is an element of a query. Tiles are folded in order: a query's bits depend only on its own
// q and the rows.
//
// Products of a value that is not finite with the zero weight of a query that does not see it are
// NaN. A block that ends with such numbers works once more: carefully, with those values apart.
#pragma once

#include "kernels/cuda/mma_inl.h"
#include "kernels/cuda/prefill_stage_inl.h"
#include "kernels/cuda/prefill_weights_inl.h"

namespace fasa::cuda {

template <DType kElement>
FASA_DEVICE void mma_rows(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kElement == DType::kBF16) {
    mma_bf16(d, a, b);
  } else {
    mma_f16(d, a, b);
  }
}

// `kExact`: weights and queries are two numbers each.
template <RowDType::Kind kRow, int kDim, bool kExact>
struct PrefillTileKernel {
  static constexpr const char* kName = "prefill";
  static constexpr int kThreads = 256;
  static constexpr int kResidentBlocks = kDim <= 64 && !kExact ? 2 : 1;
  static constexpr int kRows = kThreads / 2;
  using Dim = PrefillTileDim<kDim>;
  using Stage = PrefillStage<kRow, kDim, kThreads>;
  using Weights = PrefillWeights<Dim::kKeys>;
  static constexpr bool kCoded = Stage::kCoded;
  static constexpr DType kElement = Stage::kElement;
  static constexpr int kDepths = Dim::kDepths;
  static constexpr int kKeys = Dim::kKeys;
  // Queries that registers have no room for are read again in each tile.
  static constexpr bool kHoldsQueries = kDim <= 128 || !kExact;
  static constexpr int kHeldDepths = kHoldsQueries ? kDepths : 1;
  static constexpr int64_t kSharedBytes = Stage::kSharedBytes;

  PrefillParams params;
  int tokens = 0;  // query tokens of a block

  struct Part {  // of a sequence: a block's
    const SequenceDesc& desc;
    int first;  // query token, counted from the sequence's first new one
    int count;
    // Positions of the warp's queries; the newest one is -1 if it has none.
    int warp_oldest;
    int warp_newest;

    FASA_DEVICE int oldest() const { return desc.start + first; }
    FASA_DEVICE int newest() const { return desc.start + first + count - 1; }
  };

  // A thread's part of its two rows: lane / 4 of its warp's sixteen, and the one eight below.
  struct State {
    uint32_t q[kHeldDepths][4];
    uint32_t q_rest[kExact ? kHeldDepths : 1][4];
    float out[2 * kDepths][4];  // see dim_of
    PrefillSums sums;
  };

  // Blocks: parts of the query tokens, KV heads, sequences. Later queries see more keys: they start
  // first.
  FASA_DEVICE void operator()() const {
    const SequenceDesc& desc = params.step.sequences[simt::block_z()];
    const int first = (simt::grid_x() - 1 - simt::block_x()) * tokens;
    if (desc.mode != StepMode::kPrefill || first >= desc.tokens) return;
    const Part part = part_of(desc, first);
    State state;
    for (bool careful = false;; careful = true) {
      load(part, state);
      add_tiles(part, careful, state);
      if (careful || !is_spoilt(state)) break;
    }
    write(part, state);
  }

 private:
  FASA_DEVICE Part part_of(const SequenceDesc& desc, int first) const {
    const int group = params.step.layout.gqa_group;
    const int count = desc.tokens - first < tokens ? desc.tokens - first : tokens;
    const int begin = simt::warp() * 16;
    const int end = begin + 16 < count * group ? begin + 16 : count * group;
    const int position = desc.start + first;
    return {desc, first, count, position + begin / group,
            begin < end ? position + (end - 1) / group : -1};
  }

  // Index among the block's rows; `half`: the upper or the lower eight of the warp's sixteen.
  FASA_DEVICE static int row_of(int half) {
    return simt::warp() * 16 + simt::lane() / 4 + 8 * half;
  }
  // Dimension of element `i` of a thread's out[n], which belongs to row i / 2.
  FASA_DEVICE static int dim_of(int n, int i) { return n * 8 + simt::lane() % 4 * 2 + i % 2; }
  FASA_DEVICE int head_of(int row) const {
    const int group = params.step.layout.gqa_group;
    return simt::block_y() * group + row % group;
  }
  FASA_DEVICE int64_t token_of(const Part& part, int row) const {
    return part.desc.first_token + part.first + row / params.step.layout.gqa_group;
  }
  FASA_DEVICE int position_of(const Part& part, int row) const {
    return part.oldest() + row / params.step.layout.gqa_group;
  }
  FASA_DEVICE int64_t query_at(const Part& part, int row) const {
    return token_of(part, row) * params.step.layout.query_heads() + head_of(row);
  }
  FASA_DEVICE float* state_of(const Part& part, int row) const {
    return params.state + query_at(part, row) * (kStateHeader + kDim);
  }
  FASA_DEVICE bool has_row(const Part& part, int row) const {
    return row < part.count * params.step.layout.gqa_group;
  }
  // The slots of a tile that one row sees.
  FASA_DEVICE int end_of(const Part& part, int row, int tile) const {
    return position_of(part, row) + 1 - tile * kKeys;
  }
  FASA_DEVICE int begin_of(int end) const { return params.window > 0 ? end - params.window : 0; }

  FASA_DEVICE void load(const Part& part, State& state) const {
    FASA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      const bool kept = has_row(part, row) && !params.first_wave;
      const float* from = kept ? state_of(part, row) : nullptr;
      state.sums.top[half] = kept ? from[0] : no_maximum();
      state.sums.sum[half] = kept ? from[1] : 0.0f;
      FASA_UNROLL
      for (int n = 0; n < 2 * kDepths; ++n) {
        FASA_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          state.out[n][i] = kept ? from[kStateHeader + dim_of(n, i)] : 0.0f;
        }
      }
    }
    if constexpr (kHoldsQueries) {
      FASA_UNROLL
      for (int depth = 0; depth < kDepths; ++depth) load_queries(part, depth, state);
    }
  }

  // Loads sixteen columns of the rows' queries, into the registers of `depth`, or into the only
  // ones.
  FASA_DEVICE void load_queries(const Part& part, int depth, State& state) const {
    const int to = kHoldsQueries ? depth : 0;
    const DType dtype = kExact ? params.q.dtype : kElement;
    FASA_UNROLL
    for (int i = 0; i < 4; ++i) {  // columns c and c + 8, of both rows
      const int row = row_of(i % 2);
      const bool there = has_row(part, row);
      const int d = depth * 16 + simt::lane() % 4 * 2 + i / 2 * 8;
      const int64_t at = there ? params.q.offset(token_of(part, row), head_of(row)) + d : 0;
      const float a = there ? cuda::load(dtype, params.q.data, at) : 0.0f;
      const float b = there ? cuda::load(dtype, params.q.data, at + 1) : 0.0f;
      state.q[to][i] = packed<kElement>(a, b);
      if constexpr (kExact) state.q_rest[to][i] = packed_rest<kElement>(a, b, state.q[to][i]);
    }
  }

  FASA_DEVICE static TileRows rows_of(const Part& part, const PrefillPages& pages, int tile) {
    const int slots = part.newest() + 1 - tile * kKeys;
    return pages.rows(tile / Dim::kTiles, tile % Dim::kTiles * kKeys,
                      slots < kKeys ? slots : kKeys);
  }

  FASA_DEVICE void add_tiles(const Part& part, bool careful, State& state) const {
    int tile = params.begin_page * Dim::kTiles;
    if (params.window > 0) {
      const int oldest = (part.oldest() + 1 - params.window) / kKeys;
      tile = oldest > tile ? oldest : tile;
    }
    const int seen = part.newest() / kKeys + 1;
    const int end = seen < params.end_page * Dim::kTiles ? seen : params.end_page * Dim::kTiles;
    if (tile >= end) return;
    const PrefillPages pages = PrefillPages::of(params, simt::block_z(), simt::block_y());
    Stage::bring(rows_of(part, pages, tile), pages.row_bytes, tile);
    TileRows next = rows_of(part, pages, tile + 1 < end ? tile + 1 : tile);
    for (; tile < end; ++tile) {
      simt::wait_copies<0>();
      simt::sync_block();  // the tile is there, and all threads have left the one before
      if (tile + 1 < end) Stage::bring(next, pages.row_bytes, tile + 1);
      add_tile(part, tile, careful, state);
      // Before the barrier, where the block's threads would wait for the addresses together.
      if (tile + 2 < end) next = rows_of(part, pages, tile + 2);
    }
  }

  // `careful`: a block's threads meet.
  FASA_DEVICE void add_tile(const Part& part, int tile, bool careful, State& state) const {
    const bool sees = tile * kKeys <= part.warp_newest;
    Weights weights = {};
    if (sees) {
      score(part, tile, state, weights);
      if constexpr (kCoded) weights.scale(Stage::key_scales(tile));
      finish_scores(part, tile, weights);
      weigh(weights, state);
    }
    if (careful) {
      simt::sync_block();  // the keys have been read
      if (simt::thread_index() == 0) Stage::spoilt(tile) = 0;
      simt::sync_block();
      Stage::clean_values(tile);
      simt::sync_block();
    }
    if (sees) add_values(tile, weights, state);
    if (careful && Stage::spoilt(tile) != 0) add_spoilt(part, tile, weights, state);
  }

  FASA_DEVICE void score(const Part& part, int tile, State& state, Weights& scores) const {
    const int row = simt::lane() % 8;
    const int odd = simt::lane() / 8 % 2;
    const simt::Word16* const keys = Stage::keys(tile) + simt::lane() / 16 * 8 * Dim::kStride;
    FASA_UNROLL
    for (int depth = 0; depth < kDepths; ++depth) {
      const int of = kHoldsQueries ? depth : 0;
      if constexpr (!kHoldsQueries) load_queries(part, depth, state);
      FASA_UNROLL
      for (int n = 0; n < Weights::kGroups; n += 2) {
        const simt::Word16 words =
            simt::load_matrices<false>(keys + Dim::word(n, row, 2 * depth, odd));
        FASA_UNROLL
        for (int i = 0; i < 2; ++i) {
          const uint32_t b[2] = {words.words[2 * i], words.words[2 * i + 1]};
          mma_rows<kElement>(scores.at[n + i], state.q[of], b);
          if constexpr (kExact) mma_rows<kElement>(scores.at[n + i], state.q_rest[of], b);
        }
      }
    }
  }

  FASA_DEVICE void finish_scores(const Part& part, int tile, Weights& scores) const {
    const StepParams& step = params.step;
    const int from = tile * kKeys;
    const bool whole = from + kKeys <= part.warp_oldest + 1 &&
                       (params.window <= 0 || from > part.warp_newest - params.window);
    if (whole && step.slopes == nullptr && step.score_cap <= 0) return;
    FASA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int end = end_of(part, row_of(half), tile);
      if (step.slopes != nullptr) {
        scores.add_slope(half, step.slopes[head_of(row_of(half))], end - 1);
      }
      if (step.score_cap > 0) scores.cap(half, step.score_cap);
      if (!whole) scores.hide(half, begin_of(end), end);
    }
  }

  FASA_DEVICE void weigh(Weights& weights, State& state) const {
    constexpr float kLog2E = 1.44269504f;
    float factors[2];
    if (!weights.weigh(params.scale * kLog2E, state.sums, factors)) return;
    FASA_UNROLL
    for (int n = 0; n < 2 * kDepths; ++n) {
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) state.out[n][i] *= factors[i / 2];
    }
  }

  FASA_DEVICE static void add_values(int tile, const Weights& weights, State& state) {
    const int row = simt::lane() % 8;
    const int odd = simt::lane() / 16;
    const simt::Word16* const values =
        Stage::values(tile) + simt::lane() / 8 % 2 * 8 * Dim::kStride;
    FASA_UNROLL
    for (int k = 0; k < Weights::kGroups / 2; ++k) {  // sixteen keys
      uint32_t a[4], rest[4];
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* pair = &weights.at[2 * k + i / 2][2 * (i % 2)];
        float scaled[2] = {pair[0], pair[1]};
        if constexpr (kCoded) {
          const float* scales = Stage::value_scales(tile) + Weights::slot_of(2 * k + i / 2, 0);
          scaled[0] *= scales[0];
          scaled[1] *= scales[1];
        }
        a[i] = packed<kElement>(scaled[0], scaled[1]);
        if constexpr (kExact) rest[i] = packed_rest<kElement>(scaled[0], scaled[1], a[i]);
      }
      FASA_UNROLL
      for (int n = 0; n < 2 * kDepths; n += 2) {
        const simt::Word16 words =
            simt::load_matrices<true>(values + Dim::word(2 * k, row, n, odd));
        FASA_UNROLL
        for (int i = 0; i < 2; ++i) {
          const uint32_t b[2] = {words.words[2 * i], words.words[2 * i + 1]};
          mma_rows<kElement>(state.out[n + i], a, b);
          if constexpr (kExact) mma_rows<kElement>(state.out[n + i], rest, b);
        }
      }
    }
  }

  // Whether an output of the block is not finite.
  FASA_DEVICE static bool is_spoilt(const State& state) {
    float none = 0;
    FASA_UNROLL
    for (int n = 0; n < 2 * kDepths; ++n) {
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) none = simt::fused(state.out[n][i], 0.0f, none);
    }
    simt::sync_block();  // all tiles have been read
    if (simt::thread_index() == 0) Stage::spoilt(0) = 0;
    simt::sync_block();
    if (none != none) simt::atomic_or(&Stage::spoilt(0), 1u);
    simt::sync_block();
    const bool spoilt = Stage::spoilt(0) != 0;
    simt::sync_block();  // before the next tile
    return spoilt;
  }

  // Adds the values that clean_values() has zeroed, one by one: rare and slow.
  FASA_DEVICE void add_spoilt(const Part& part, int tile, const Weights& weights,
                              State& state) const {
    float* const shared = Stage::weights(tile);  // [16 rows][8 slots]
    for (int group = 0; group < Weights::kGroups; ++group) {
      FASA_UNROLL
      for (int n = 0; n < Weights::kGroups; ++n) {
        if (n != group) continue;
        FASA_UNROLL
        for (int i = 0; i < 4; ++i) {
          shared[(simt::lane() / 4 + i / 2 * 8) * 8 + simt::lane() % 4 * 2 + i % 2] =
              weights.at[n][i];
        }
      }
      simt::sync_warp();
      for (int slot = group * 8; slot < group * 8 + 8; ++slot) {
        // Unrolled; otherwise the state would be in memory instead of registers, in every tile.
        FASA_UNROLL
        for (int half = 0; half < 2; ++half) {
          const float weight = shared[(simt::lane() / 4 + half * 8) * 8 + slot % 8];
          add_spoilt(part, tile, half, slot, weight, state);
        }
      }
      simt::sync_warp();
    }
  }
  FASA_DEVICE void add_spoilt(const Part& part, int tile, int half, int slot, float weight,
                              State& state) const {
    const int row = row_of(half);
    const int end = end_of(part, row, tile);
    if (!has_row(part, row) || slot < begin_of(end) || slot >= end) return;
    const std::byte* value =
        row_at(params.step, simt::block_z(), simt::block_y(), tile * kKeys + slot, params.pages,
               NewRows::kInWriteBackBuffer) +
        params.step.layout.row.key_bytes();
    const RowVector values = RowVector::of(kRow, value, kDim);
    FASA_UNROLL
    for (int n = 0; n < 2 * kDepths; ++n) {
      FASA_UNROLL
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        const float v = values.at(dim_of(n, i));
        if (v - v != 0.0f) state.out[n][i] += weight * v;  // not finite
      }
    }
  }

  FASA_DEVICE void write(const Part& part, const State& state) const {
    FASA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      if (!has_row(part, row)) continue;
      const float top = state.sums.top[half];
      const float sum = state.sums.sum[half];
      const bool leader = simt::lane() % 4 == 0;
      float* const to = params.last_wave ? nullptr : state_of(part, row);
      if (leader && to != nullptr) to[0] = top, to[1] = sum;
      if (leader && params.last_wave && params.lse != nullptr) {
        constexpr float kLogOf2 = 0.69314718f;
        params.lse[query_at(part, row)] = top * kLogOf2 + logarithm(sum);
      }
      const float inverse = 1.0f / divisor_of(top, sum);
      const int64_t at = params.out.offset(token_of(part, row), head_of(row));
      FASA_UNROLL
      for (int n = 0; n < 2 * kDepths; ++n) {
        FASA_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const int d = dim_of(n, i);
          if (to != nullptr) {
            to[kStateHeader + d] = state.out[n][i];
          } else {
            store(kExact ? params.out.dtype : kElement, params.out.data, at + d,
                  state.out[n][i] * inverse);
          }
        }
      }
    }
  }
};

}  // namespace fasa::cuda
