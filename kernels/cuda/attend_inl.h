// FAC: a block per KV head and tile of 32 rows; all query heads of the GQA group use the same rows.
// Rows are copied to shared memory unchanged, all loads of a tile at once, and values arrive while
// keys are scored. A warp scores eight rows at a time. Products are summed over the lanes by
// halving, so that lane l ends with one row's score for one head, to which ALiBi's term and the cap
// are applied. One warp computes the softmax of a head's tile; then every thread sums two
// dimensions of the values for two heads. A tile's partial depends only on its rows and queries.
// Tiles of the low-bit set, or blocks of its pages, are blocks of the same launch. A second kernel
// folds the partials in tile order (attend_fold_inl.h).
#pragma once

#include "kernels/cuda/attend_fold_inl.h"
#include "kernels/cuda/low_bit_pages_inl.h"
#include "kernels/cuda/low_bit_tile_inl.h"
#include "kernels/cuda/rows_inl.h"
#include "kernels/cuda/weigh_inl.h"

namespace fasa::cuda {

// Where a tile's rows are read: from a copy in shared memory, or in place.
enum class RowsAt : uint8_t { kShared, kHome };

// One tile of one KV head, for up to kMaxHeads of its query heads.
template <RowDType::Kind kRow, RowsAt kAt>
class AttendTile {
 public:
  static constexpr int kThreads = 128;
  static constexpr int kMaxHeads = 16;

  // Floats of shared memory: queries, scores, scales of coded rows, the rows' addresses, the rows.
  static constexpr int64_t shared_floats(const CacheLayout& layout, int heads) {
    const int64_t rows = kAt == RowsAt::kShared ? kTileTokens * row_stride(layout) : 0;
    return rows_at(layout, heads) + rows / int64_t{sizeof(float)};
  }

  // `head`: sequence x kv_heads + kv_head; `first_query`: in the GQA group.
  FASA_DEVICE AttendTile(const AttendParams& params, int head, int first_query, int heads,
                         float* shared)
      : params_(params),
        layout_(params.step.layout),
        sequence_(head / layout_.kv_heads),
        kv_head_(head % layout_.kv_heads),
        head_(head),
        first_query_(first_query),
        heads_(heads),
        desc_(params.step.sequences[sequence_]),
        aligned_(layout_.row.key_dim % 2 == 0 && layout_.row.value_dim % 2 == 0),
        keys_{layout_.row.key_dim, aligned_},
        values_{layout_.row.value_dim, aligned_},
        slopes_(params.step.slopes == nullptr
                    ? nullptr
                    : params.step.slopes + int64_t{kv_head_} * layout_.gqa_group + first_query),
        q_(shared),
        scores_(shared + int64_t{heads} * 2 * keys_.pairs()),
        scales_(scores_ + int64_t{heads} * kTileTokens),
        homes_(reinterpret_cast<const std::byte**>(shared + homes_at(layout_, heads))),
        rows_(reinterpret_cast<std::byte*>(shared + rows_at(layout_, heads))) {
    first_visible_ = 0;
    int total = 0;
    if (params.selected_sizes != nullptr) {
      total = params.selected_sizes[head];
    } else {
      const int oldest = desc_.end() - params.window;
      if (params.window > 0 && oldest > 0) first_visible_ = oldest;
      total = desc_.end() - first_visible_;
    }
    const int end = params.end < total ? params.end : total;
    entries_ = end > params.begin ? end - params.begin : 0;
  }

  FASA_DEVICE int entries() const { return entries_; }  // of the wave
  FASA_DEVICE int tiles() const { return (entries_ + kTileTokens - 1) / kTileTokens; }

  // Looks up the tile's rows and starts their copies. All threads of the block; contains a barrier.
  FASA_DEVICE void begin(int tile) const {
    if (simt::thread_index() < kTileTokens) {
      const int last = tile_tokens(tile) - 1;
      const int i = simt::thread_index() < last ? simt::thread_index() : last;
      homes_[simt::thread_index()] = row(tile, i);
    }
    simt::sync_block();
    if constexpr (kAt == RowsAt::kShared) {
      const int key_words = words(layout_.row.key_bytes());
      bring(tile, 0, key_words);
      simt::commit_copies();
      bring(tile, key_words, words(layout_.row.bytes()));
      simt::commit_copies();
    }
  }
  // Copies the queries of all tiles to shared memory.
  FASA_DEVICE void load_queries() const {
    const int width = 2 * keys_.pairs();
    for (int i = simt::thread_index(); i < heads_ * width; i += kThreads) {
      const int query = kv_head_ * layout_.gqa_group + first_query_ + i / width;
      const int d = i % width;
      const int64_t at = params_.q.offset(desc_.first_token, query) + d;
      q_[i] = d < keys_.dim ? load(params_.q.dtype, params_.q.data, at) : 0.0f;
    }
  }
  // partial(heads): f32 [2 + value_dim] of each, `stride` floats apart. All threads of the block,
  // after begin and load_queries; contains barriers.
  FASA_DEVICE void compute(int tile, float* partial, int64_t stride) const {
    const int tokens = tile_tokens(tile);
    if constexpr (kAt == RowsAt::kShared) simt::wait_copies<1>();
    simt::sync_block();
    if constexpr (kCoded) find_scales(0, keys_.dim, tokens);
    for (int first = 0; first < heads_; first += kScored) score(tile, tokens, first);
    simt::sync_block();
    weigh_scores<kThreads>(scores_, heads_, tokens, partial, stride);
    if constexpr (kAt == RowsAt::kShared) simt::wait_copies<0>();
    simt::sync_block();
    if constexpr (kCoded) {
      find_scales(layout_.row.key_bytes(), values_.dim, tokens);
      scale_weights(tokens);
    }
    sum_values(tokens, partial, stride);
  }

 private:
  static constexpr int kScored = 4;  // query heads at a time
  static constexpr int kRows = 8;    // of a warp, at a time: kTileTokens over its four warps
  static constexpr bool kCoded = RowDType(kRow).is_coded();

  // Floats before the rows' addresses, and before the rows.
  static constexpr int64_t homes_at(const CacheLayout& layout, int heads) {
    const int pairs = (layout.row.key_dim + 1) / 2;
    return int64_t{heads} * (2 * pairs + kTileTokens) + (kCoded ? kTileTokens : 0);
  }
  static constexpr int64_t rows_at(const CacheLayout& layout, int heads) {
    constexpr int64_t kWord = sizeof(simt::Word16) / sizeof(float);
    const int64_t floats = homes_at(layout, heads) + kTileTokens * int64_t{sizeof(void*)} / 4;
    return (floats + kWord - 1) / kWord * kWord;
  }
  // One word more than a row, so that threads with a row each access different banks.
  static constexpr int64_t row_stride(const CacheLayout& layout) {
    return layout.row.bytes() + int64_t{sizeof(simt::Word16)};
  }
  FASA_DEVICE static int words(int64_t bytes) {
    constexpr int64_t kWord = sizeof(simt::Word16);
    return static_cast<int>((bytes + kWord - 1) / kWord);
  }

  FASA_DEVICE int tile_tokens(int tile) const {
    const int left = entries_ - tile * kTileTokens;
    return left < kTileTokens ? left : kTileTokens;
  }

  FASA_DEVICE const std::byte* row(int tile, int i) const {
    const int entry = tile * kTileTokens + i;
    if (params_.selected_sizes != nullptr) {
      return params_.rows[int64_t{head_} * (params_.end - params_.begin) + entry];
    }
    return row_at(params_.step, sequence_, kv_head_, first_visible_ + params_.begin + entry,
                  params_.pages, NewRows::kInPages);
  }
  // Copies words [first, end) of the tile's rows, eight threads per row.
  FASA_DEVICE void bring(int tile, int first, int end) const {
    constexpr int kOfRow = 8;
    const int tokens = tile_tokens(tile);
    for (int i = simt::thread_index() / kOfRow; i < tokens; i += kThreads / kOfRow) {
      auto* to = reinterpret_cast<simt::Word16*>(rows_ + i * row_stride(layout_));
      const auto* from = reinterpret_cast<const simt::Word16*>(homes_[i]);
      for (int word = first + simt::thread_index() % kOfRow; word < end; word += kOfRow) {
        simt::copy_async(to + word, from + word);
      }
    }
  }
  // Address of row i of the tile.
  FASA_DEVICE const std::byte* place(int i) const {
    if constexpr (kAt == RowsAt::kShared) {
      return rows_ + i * row_stride(layout_);
    } else {
      return homes_[i];
    }
  }

  // Scale of the vector at byte `at` of each row, one thread per row.
  FASA_DEVICE void find_scales(int64_t at, int dim, int tokens) const {
    const int i = simt::thread_index();
    if (i < tokens) scales_[i] = scale_of(place(i) + at, dim);
    simt::sync_block();
  }
  FASA_DEVICE void scale_weights(int tokens) const {
    for (int i = simt::thread_index(); i < heads_ * kTileTokens; i += kThreads) {
      if (i % kTileTokens < tokens) scores_[i] *= scales_[i % kTileTokens];
    }
    simt::sync_block();
  }

  // Scores of this warp's rows for heads [first, first + kScored).
  FASA_DEVICE void score(int tile, int tokens, int first) const {
    float sums[simt::kWarpThreads] = {};  // [row][head]
    const std::byte* rows[kRows];
    const int first_row = simt::warp() * kRows;
    FASA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int at = first_row + i;
      rows[i] = place(at < tokens ? at : tokens - 1);
    }
    for (int pair = simt::lane(); pair < keys_.pairs(); pair += simt::kWarpThreads) {
      Pair keys[kRows];
      FASA_UNROLL
      for (int i = 0; i < kRows; ++i) keys[i] = load_pair<kRow>(rows[i], pair, keys_);
      FASA_UNROLL
      for (int h = 0; h < kScored; ++h) {
        const int query = first + h < heads_ ? first + h : heads_ - 1;
        const float* q = q_ + query * 2 * keys_.pairs() + 2 * pair;
        FASA_UNROLL
        for (int i = 0; i < kRows; ++i) {
          float& sum = sums[i * kScored + h];
          sum = simt::fused(q[0], keys[i].low, sum);
          sum = simt::fused(q[1], keys[i].high, sum);
        }
      }
    }
    const float sum = sum_over_lanes(sums);
    const int query = first + simt::lane() % kScored;
    const int at = first_row + simt::lane() / kScored;
    if (query < heads_ && at < tokens) {
      const float scale = kCoded ? scales_[at] : 1.0f;
      const float score = with_slope(sum * scale, query, tile, at);
      scores_[query * kTileTokens + at] =
          soft_capped(score, params_.step.score_cap) * params_.scale;
    }
  }

  FASA_DEVICE float with_slope(float score, int query, int tile, int i) const {
    const int entry = tile * kTileTokens + i;
    if (slopes_ == nullptr) return score;
    const int64_t set = int64_t{head_} * params_.selected_capacity + params_.begin;
    const int position = params_.selected_sizes != nullptr ? params_.sets[set + entry]
                                                           : first_visible_ + params_.begin + entry;
    return simt::fused(slopes_[query], static_cast<float>(position - (desc_.end() - 1)), score);
  }

  // Lane l gets the sum of sums[l] over all lanes, in 31 shuffles instead of 160. Every index is a
  // compile-time constant: a loop over halves is not unrolled and moves the sums to memory.
  FASA_DEVICE static float sum_over_lanes(float (&sums)[simt::kWarpThreads]) {
    halve<simt::kWarpThreads / 2>(sums);
    return sums[0];
  }
  template <int kHalf>
  FASA_DEVICE static void halve(float (&sums)[simt::kWarpThreads]) {
    const bool upper = (simt::lane() & kHalf) != 0;
    FASA_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      const float kept = upper ? sums[i + kHalf] : sums[i];
      const float sent = upper ? sums[i] : sums[i + kHalf];
      sums[i] = kept + simt::shuffle_xor(sent, kHalf);
    }
    if constexpr (kHalf > 1) halve<kHalf / 2>(sums);
  }

  FASA_DEVICE void sum_values(int tokens, float* partial, int64_t stride) const {
    const auto value_of = [this](int i, int pair) {
      return load_pair<kRow>(place(i) + layout_.row.key_bytes(), pair, values_);
    };
    sum_weighed<kThreads>(scores_, heads_, tokens, values_.dim, value_of, partial, stride);
  }

  const AttendParams& params_;
  const CacheLayout& layout_;
  const int sequence_;
  const int kv_head_;
  const int head_;
  const int first_query_;
  const int heads_;
  const SequenceDesc& desc_;
  const bool aligned_;
  const PairFormat keys_;
  const PairFormat values_;
  const float* const slopes_;      // of the tile's heads; null = no ALiBi
  float* const q_;                 // [heads][2 x pairs]
  float* const scores_;            // [heads][kTileTokens]
  float* const scales_;            // [kTileTokens] where rows are coded, of keys, then of values
  const std::byte** const homes_;  // [kTileTokens]
  std::byte* const rows_;          // [kTileTokens], row_stride apart
  int first_visible_;
  int entries_;
};

// Partials of the requested tiles. Blocks: (tiles, then low-bit tiles) x parts of the GQA group, KV
// heads, sequences.
template <RowDType::Kind kRow, RowsAt kAt>
struct AttendPartialsKernel {
  using Tile = AttendTile<kRow, kAt>;
  static constexpr const char* kName = "attend";
  static constexpr int kThreads = Tile::kThreads;
  static constexpr int kResidentBlocks = 4;

  AttendParams params;

  FASA_DEVICE void operator()() const {
    const CacheLayout& layout = params.step.layout;
    if (params.step.sequences[simt::block_z()].mode != StepMode::kDecode) return;
    const int tiles = wave_tiles(params);
    const int all =
        tiles + (params.phase == AttendPhase::kRemainingTiles ? 0 : low_bit_parts(params));
    const int tile = simt::block_x() % all;
    const int kv_head = params.step.first_head() + simt::block_y();
    const int head = simt::block_z() * layout.kv_heads + kv_head;
    const int first = simt::block_x() / all * Tile::kMaxHeads;
    const int left = layout.gqa_group - first;
    const int heads = left < Tile::kMaxHeads ? left : Tile::kMaxHeads;
    const int64_t width = kStateHeader + layout.row.value_dim;
    const int64_t query = int64_t{head} * layout.gqa_group + first;
    float* const shared = reinterpret_cast<float*>(simt::shared_memory());
    if (tile >= tiles) {
      const int parts = low_bit_parts(params);
      const int part = tile - tiles;
      float* const partial = params.low_bit_partials + (query * parts + part) * width;
      if (part < LowBitTile::tiles(params, head)) {
        LowBitTile(params, head, first, heads, shared).compute(part, partial, parts * width);
      }
      const int tokens = LowBitPagesBlock::tokens(params, simt::block_z(), kv_head);
      if (tokens > 0 && part < LowBitPagesBlock::blocks(params, head)) {
        const int64_t stride = parts * width;
        LowBitPagesBlock(params, head, first, heads, tokens, shared)
            .compute(part, {partial, stride, layout.query_heads() * stride});
      }
      return;
    }
    if (params.phase != AttendPhase::kAllTiles) {
      const bool ready =
          params.tile_ready != nullptr && params.tile_ready[int64_t{head} * tiles + tile] != 0;
      if (ready != (params.phase == AttendPhase::kReadyTiles)) return;
    }
    const Tile body(params, head, first, heads, shared);
    if (tile >= body.tiles()) return;
    body.begin(tile);
    body.load_queries();
    body.compute(tile, params.partials + (query * tiles + tile) * width, tiles * width);
  }
};

// Floats of shared memory that a tile of any kind needs.
template <typename Tile>
constexpr int64_t tile_floats(const AttendParams& params, int heads) {
  const CacheLayout& layout = params.step.layout;
  int64_t floats = Tile::shared_floats(layout, heads);
  const auto raise = [&](int64_t other) { floats = floats < other ? other : floats; };
  if (params.low_bit.capacity > 0) raise(LowBitTile::shared_floats(heads));
  if (params.low_bit_pages.capacity > 0) {
    raise(LowBitPagesBlock::shared_floats(layout, params.step.together * heads));
  }
  return (floats + 3) / 4 * 4;  // whole words of 16 bytes
}

// Used if there is no memory for partials: a block processes all tiles of a KV head, with state and
// partial in shared memory. The bits are the same.
template <RowDType::Kind kRow>
struct AttendAtOnceKernel {
  using Tile = AttendTile<kRow, RowsAt::kHome>;
  static constexpr const char* kName = "attend";
  static constexpr int kThreads = Tile::kThreads;

  AttendParams params;

  FASA_DEVICE void operator()() const {
    const CacheLayout& layout = params.step.layout;
    const SequenceDesc& desc = params.step.sequences[simt::block_z()];
    if (desc.mode != StepMode::kDecode) return;
    const int kv_head = params.step.first_head() + simt::block_y();
    const int head = simt::block_z() * layout.kv_heads + kv_head;
    const int first = simt::block_x() * Tile::kMaxHeads;
    const int left = layout.gqa_group - first;
    const int heads = left < Tile::kMaxHeads ? left : Tile::kMaxHeads;
    const int width = kStateHeader + layout.row.value_dim;
    float* const shared = reinterpret_cast<float*>(simt::shared_memory());
    float* const states = shared + tile_floats<Tile>(params, heads);
    float* const partials = states + heads * width;
    const int64_t query =
        int64_t{simt::block_z()} * layout.query_heads() + kv_head * layout.gqa_group + first;

    const Tile body(params, head, first, heads, shared);
    body.load_queries();
    for (int i = simt::thread_index(); i < heads * width; i += kThreads) {
      states[i] = !params.first_wave ? params.state[query * width + i]
                  : i % width == 0   ? no_maximum()
                                     : 0.0f;
    }
    simt::sync_block();
    for (int tile = 0; tile < body.tiles(); ++tile) {
      body.begin(tile);
      body.compute(tile, partials, width);
      simt::sync_block();
      fold(states, partials, heads, width);
    }
    const int head_tiles = LowBitTile::tiles(params, head);
    const LowBitTile low_bit(params, head, first, heads, shared);
    for (int tile = 0; tile < head_tiles; ++tile) {
      low_bit.compute(tile, partials, width);
      simt::sync_block();
      fold(states, partials, heads, width);
    }
    const int head_blocks = LowBitPagesBlock::blocks(params, head);
    const LowBitPagesBlock pages(params, head, first, heads, 1, shared);
    for (int block = 0; block < head_blocks; ++block) {
      pages.compute(block, {partials, width, 0});
      simt::sync_block();
      fold(states, partials, heads, width);
    }
    for (int i = simt::thread_index(); i < heads * width; i += kThreads) {
      const int d = i % width - kStateHeader;
      const float* state = states + i / width * width;
      if (!params.last_wave) {
        params.state[query * width + i] = states[i];
      } else if (d >= 0) {
        write_output(params, desc.first_token, kv_head * layout.gqa_group + first + i / width,
                     state[0], state[1], d, states[i]);
      }
    }
  }

 private:
  FASA_DEVICE void fold(float* states, const float* partials, int heads, int width) const {
    // Each element by one thread; the maxima, which all threads read, last.
    for (int i = simt::thread_index(); i < heads * width; i += kThreads) {
      const int top = i / width * width;
      if (i == top) continue;
      states[i] = SoftmaxMerge::of(states[top], partials[top])(states[i], partials[i]);
    }
    simt::sync_block();
    for (int h = simt::thread_index(); h < heads; h += kThreads) {
      states[h * width] = SoftmaxMerge::of(states[h * width], partials[h * width]).top;
    }
    simt::sync_block();
  }
};

// A GQA group's query heads, split over blocks.
struct GroupParts {
  int count;
  int heads;  // of the largest part

  template <typename Tile>
  static GroupParts of(const CacheLayout& layout) {
    return {(layout.gqa_group + Tile::kMaxHeads - 1) / Tile::kMaxHeads,
            layout.gqa_group < Tile::kMaxHeads ? layout.gqa_group : Tile::kMaxHeads};
  }
};

template <RowDType::Kind kRow, typename Launcher>
void attend_at_once(const AttendParams& params, const Launcher& launch) {
  using Kernel = AttendAtOnceKernel<kRow>;
  const CacheLayout& layout = params.step.layout;
  const auto parts = GroupParts::of<typename Kernel::Tile>(layout);
  const int64_t kept = 2 * int64_t{parts.heads} * (kStateHeader + layout.row.value_dim);
  const int64_t floats = tile_floats<typename Kernel::Tile>(params, parts.heads) + kept;
  launch(Kernel{params}, {.x = parts.count,
                          .y = params.step.head_count(),
                          .z = params.step.count,
                          .shared_bytes = floats * static_cast<int64_t>(sizeof(float))});
}

template <RowDType::Kind kRow, RowsAt kAt, typename Launcher>
void attend_tiles(const AttendParams& params, const Launcher& launch) {
  using Kernel = AttendPartialsKernel<kRow, kAt>;
  const CacheLayout& layout = params.step.layout;
  const auto parts = GroupParts::of<typename Kernel::Tile>(layout);
  const bool low_bit = params.phase != AttendPhase::kRemainingTiles;
  const int tiles = tiles_of(params.end - params.begin) + (low_bit ? low_bit_parts(params) : 0);
  const int64_t floats = tile_floats<typename Kernel::Tile>(params, parts.heads);
  launch(Kernel{params}, {.x = tiles * parts.count,
                          .y = params.step.head_count(),
                          .z = params.step.count,
                          .shared_bytes = floats * static_cast<int64_t>(sizeof(float))});
}

// Copies a tile's rows to shared memory if they fit there on every device.
template <RowDType::Kind kRow>
bool rows_fit(const AttendParams& params) {
  constexpr int64_t kGiven = 48 << 10;
  using Tile = AttendTile<kRow, RowsAt::kShared>;
  const int heads = GroupParts::of<Tile>(params.step.layout).heads;
  return Tile::shared_floats(params.step.layout, heads) * int64_t{sizeof(float)} <= kGiven;
}

template <RowDType::Kind kRow, typename Launcher>
void launch_attend_of(const AttendParams& params, const Launcher& launch) {
  if (params.partials == nullptr) return attend_at_once<kRow>(params, launch);
  if (rows_fit<kRow>(params)) {
    attend_tiles<kRow, RowsAt::kShared>(params, launch);
  } else {
    attend_tiles<kRow, RowsAt::kHome>(params, launch);
  }
  if (params.phase == AttendPhase::kReadyTiles) return;
  launch(AttendFoldKernel{params}, {.x = params.step.head_count() * params.step.layout.gqa_group,
                                    .y = params.step.count,
                                    .shared_bytes = AttendFoldKernel::kSharedBytes});
}

template <typename Launcher>
void start(const AttendParams& params, const Launcher& launch) {
  switch (params.step.layout.row.dtype) {
    case RowDType::kF32:
      return launch_attend_of<RowDType::kF32>(params, launch);
    case RowDType::kF16:
      return launch_attend_of<RowDType::kF16>(params, launch);
    case RowDType::kBF16:
      return launch_attend_of<RowDType::kBF16>(params, launch);
    case RowDType::kInt8:
      return launch_attend_of<RowDType::kInt8>(params, launch);
  }
}

}  // namespace fasa::cuda
