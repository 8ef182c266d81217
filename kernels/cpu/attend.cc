// FAC: splits the tiles over threads and folds them in tile order. The result's bits depend on
// neither threads nor splits: a tile's partial is computed independently, and the fold of a
// (sequence, query head) is one chain of merges in tile order, done on the way or after all tiles.
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cpu/attend_low_bit.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/low_bit_pages.h"
#include "kernels/cpu/rows/row_bodies.h"
#include "kernels/cpu/rows/row_convert.h"
#include "kernels/cpu/rows/row_scratch.h"
#include "kernels/cpu/select/query_codes.h"
#include "kernels/kernel_work.h"
#include "kernels/softmax_state.h"
#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

using RowPointer = const unsigned char*;

// Tiles per task when tiles are split: 512 tokens, 256 KiB of rows at head_dim 128.
constexpr int kTaskTiles = 16;

class AttendCall {
 public:
  AttendCall(Target target, const AttendParams& params)
      : bodies_(row_bodies(target)),
        params_(params),
        layout_(params.step.layout),
        low_bit_(bodies_, params),
        low_bit_blocks_(low_bit_bodies(target), params),
        wave_(params.end - params.begin),
        tiles_((wave_ + kTileTokens - 1) / kTileTokens),
        width_(kSoftmaxHeader + layout_.row.value_dim),
        q_stride_(align_up(layout_.row.key_dim, kPadFloats)),
        bf16_stride_(align_up(layout_.row.key_dim, kPadBf16)),
        code_stride_(align_up(layout_.row.key_dim, kPadCodes)),
        uses_bf16_(bodies_.wants_bf16_queries && params.q.dtype == DType::kBF16 &&
                   layout_.row.dtype == RowDType::kBF16) {}

  KernelWork run() {
    const StepParams& step = params_.step;
    const int heads = step.count * step.head_count();
    const int threads = tbb::this_task_arena::max_concurrency();
    const bool at_once = params_.phase == AttendPhase::kAllTiles &&
                         (params_.partials == nullptr ||
                          (heads >= 4 * threads && low_bit_blocks_.max_blocks() == 0));
    if (at_once) {
      parallel_for(0, heads, [&](int head) { attend_at_once(step.head_index(head)); });
    } else {
      const int chunks = (tiles_ + kTaskTiles - 1) / kTaskTiles;
      const bool low_bit = params_.phase != AttendPhase::kRemainingTiles;
      if (low_bit) compute_low_bit_blocks();
      const int of_low_bit = low_bit ? (low_bit_.max_tiles() + kTaskTiles - 1) / kTaskTiles : 0;
      const int all = chunks + of_low_bit;
      parallel_for(0, heads * all, [&](int task) {
        const int head = step.head_index(task / all);
        const int chunk = task % all;
        if (chunk < chunks) {
          compute_partials(head, chunk * kTaskTiles);
        } else {
          compute_low_bit_partials(head, (chunk - chunks) * kTaskTiles);
        }
      });
      if (params_.phase != AttendPhase::kReadyTiles) {
        parallel_for(0, heads, [&](int head) { fold_partials(step.head_index(head)); });
      }
    }
    return {.device_bytes = device_bytes_.load()};
  }

 private:
  // One KV head of one sequence, as flat index sequence * kv_heads + kv_head.
  struct Head {
    int sequence;
    int kv_head;
    int entries;        // in this wave
    int first_visible;  // position of entry 0 if there is no set
  };

  bool skipped(int head) const {
    return params_.step.sequences[head / layout_.kv_heads].mode != StepMode::kDecode;
  }

  Head head_at(int index) const {
    Head head = {index / layout_.kv_heads, index % layout_.kv_heads, 0, 0};
    const SequenceDesc& sequence = params_.step.sequences[head.sequence];
    int total = 0;
    if (params_.selected_sizes != nullptr) {
      total = params_.selected_sizes[index];
    } else {
      if (params_.window > 0) head.first_visible = std::max(0, sequence.end() - params_.window);
      total = sequence.end() - head.first_visible;
    }
    head.entries = std::max(0, std::min(params_.end, total) - params_.begin);
    return head;
  }

  // The rows of a tile of this wave; stored in `buffer` if they come from pages.
  const RowPointer* tile_rows(const Head& head, int tile, RowPointer* buffer) const {
    const int64_t index = int64_t{head.sequence} * layout_.kv_heads + head.kv_head;
    if (params_.selected_sizes != nullptr) {
      const std::byte* const* rows = params_.rows + index * wave_ + tile * kTileTokens;
      return reinterpret_cast<const RowPointer*>(rows);
    }
    const int first = head.first_visible + params_.begin + tile * kTileTokens;
    const int count = std::min(kTileTokens, head.entries - tile * kTileTokens);
    for (int i = 0; i < count;) {  // a page's rows of a head lie one after the other
      const auto row = reinterpret_cast<RowPointer>(page_row(head, first + i));
      const int end = std::min(count, i + kPageTokens - (first + i) % kPageTokens);
      for (int64_t at = 0; i < end; ++i, at += layout_.row.bytes()) buffer[i] = row + at;
    }
    return buffer;
  }

  const std::byte* page_row(const Head& head, int position) const {
    const int page = position / kPageTokens;
    const int slot = position % kPageTokens;
    const SequenceDesc& sequence = params_.step.sequences[head.sequence];
    const int64_t offset = layout_.row_offset(params_.step.layer, head.kv_head, slot);
    const std::byte* device = sequence.device_row_block(page);
    if (device != nullptr) return device + offset;
    const CopiedPages& copied = params_.pages;
    const int at = page - copied.first_page;
    if (copied.data != nullptr && at >= 0 && at < copied.pages) {
      const int64_t block = (int64_t{head.sequence} * copied.pages + at) * layout_.kv_heads;
      return copied.data + (block + head.kv_head) * layout_.row_head_bytes() +
             slot * layout_.row.bytes();
    }
    return sequence.row_blocks[page] + offset;
  }

  // Floats of scratch for the GQA group's queries: in f32 and, if needed, in bf16 or as codes with
  // their scales.
  int64_t query_floats() const {
    const int64_t narrow = uses_bf16_ ? bf16_stride_ / 2 : 0;
    const int64_t coded = uses_codes() ? code_stride_ / 2 + 1 : 0;
    return align_up(layout_.gqa_group * (q_stride_ + narrow + coded), kPadFloats);
  }
  bool uses_codes() const { return layout_.row.dtype.is_coded(); }
  int16_t* query_codes(float* q) const {
    return uses_codes() ? reinterpret_cast<int16_t*>(q + layout_.gqa_group * q_stride_) : nullptr;
  }
  float* query_scales(float* q) const {
    return uses_codes() ? q + layout_.gqa_group * (q_stride_ + code_stride_ / 2) : nullptr;
  }
  uint16_t* bf16_queries(float* q) const {
    return uses_bf16_ ? reinterpret_cast<uint16_t*>(q + layout_.gqa_group * q_stride_) : nullptr;
  }

  // Loads the GQA group's queries, zero-padded to whole registers.
  void load_queries(const Head& head, float* q) const {
    uint16_t* narrow = bf16_queries(q);
    const int token = params_.step.sequences[head.sequence].first_token;
    for (int i = 0; i < layout_.gqa_group; ++i, q += q_stride_) {
      const int64_t at = params_.q.offset(token, head.kv_head * layout_.gqa_group + i);
      bodies_.expand[static_cast<int>(params_.q.dtype)](
          static_cast<const std::byte*>(params_.q.data) + at * dtype_bytes(params_.q.dtype),
          layout_.row.key_dim, q);
      std::fill(q + layout_.row.key_dim, q + q_stride_, 0.0f);
      if (uses_codes()) {
        float* const first = q - i * q_stride_;
        query_scales(first)[i] = code_query({q, static_cast<size_t>(layout_.row.key_dim)},
                                            query_codes(first) + i * code_stride_, code_stride_);
      }
      if (narrow == nullptr) continue;
      std::copy_n(static_cast<const uint16_t*>(params_.q.data) + at, layout_.row.key_dim, narrow);
      std::fill(narrow + layout_.row.key_dim, narrow + bf16_stride_, uint16_t{0});
      narrow += bf16_stride_;
    }
  }

  TileTask task_for(float* q) const {
    TileTask task;
    task.q = q;
    task.q_bf16 = bf16_queries(q);
    task.q_codes = query_codes(q);
    task.q_scales = query_scales(q);
    task.q_stride = q_stride_;
    task.group = layout_.gqa_group;
    task.key_dim = layout_.row.key_dim;
    task.value_dim = layout_.row.value_dim;
    task.key_bytes = layout_.row.key_bytes();
    task.row_bytes = layout_.row.bytes();
    task.scale = params_.scale;
    task.score_cap = params_.scale * params_.step.score_cap;
    return task;
  }

  // Key positions minus the query's position, for a tile's entries, [kMaxTileTokens].
  void find_distances(const Head& head, int index, int tile, float* distances) const {
    const int query = params_.step.sequences[head.sequence].end() - 1;
    const int first = params_.begin + tile * kTileTokens;
    const int32_t* set = params_.selected_sizes == nullptr
                             ? nullptr
                             : params_.sets + int64_t{index} * params_.selected_capacity;
    const int count = std::min(kTileTokens, head.entries - tile * kTileTokens);
    for (int i = 0; i < kMaxTileTokens; ++i) {
      const int entry = first + std::min(i, count - 1);
      const int position = set == nullptr ? head.first_visible + entry : set[entry];
      distances[i] = static_cast<float>(position - query);
    }
  }

  bool wanted(int index, int tile) const {
    if (params_.phase == AttendPhase::kAllTiles) return true;
    const bool ready =
        params_.tile_ready != nullptr && params_.tile_ready[int64_t{index} * tiles_ + tile] != 0;
    return ready == (params_.phase == AttendPhase::kReadyTiles);
  }

  // Computes the wanted tiles of [begin, end); `place(task, tile)` sets where a tile's partials go,
  // `done(tile)` consumes them. Meanwhile the next tile's rows are prefetched: 32 rows ahead, as
  // the hardware cannot predict random rows.
  template <typename Place, typename Done>
  void compute_tiles(const Head& head, int index, float* q, int begin, int end, const Place& place,
                     const Done& done) {
    TileTask task = task_for(q);
    float distances[kMaxTileTokens];
    if (params_.step.slopes != nullptr) {
      task.slopes = params_.step.slopes + head.kv_head * layout_.gqa_group;
      task.distances = distances;
    }
    RowPointer buffers[2][kTileTokens];
    const auto next_wanted = [&](int tile) {
      while (tile < end && !wanted(index, tile)) ++tile;
      return tile;
    };
    const auto tokens_of = [&](int tile) {
      return std::min(kTileTokens, head.entries - tile * kTileTokens);
    };
    int tile = next_wanted(begin);
    if (tile >= end) return;
    int turn = 0;
    int64_t tokens = 0;
    task.rows = tile_rows(head, tile, buffers[turn]);
    while (tile < end) {
      const int next = next_wanted(tile + 1);
      turn ^= 1;
      task.tokens = tokens_of(tile);
      task.next_rows = next < end ? tile_rows(head, next, buffers[turn]) : nullptr;
      task.next_tokens = next < end ? tokens_of(next) : 0;
      if (task.slopes != nullptr) find_distances(head, index, tile, distances);
      place(task, tile);
      bodies_.attend_tile[layout_.row.dtype](task);
      done(tile);
      tokens += task.tokens;
      tile = next;
      task.rows = task.next_rows;
    }
    device_bytes_ += rows_bytes(layout_, tokens);
  }

  float* partial_at(const Head& head, int query_in_group, int tile) const {
    const int64_t query =
        int64_t{head.sequence} * layout_.query_heads() + head.kv_head * layout_.gqa_group;
    return params_.partials + ((query + query_in_group) * tiles_ + tile) * width_;
  }

  static int tiles_of(const Head& head) { return (head.entries + kTileTokens - 1) / kTileTokens; }

  void compute_partials(int index, int first_tile) {
    if (skipped(index)) return;
    const Head head = head_at(index);
    const int end = std::min(first_tile + kTaskTiles, tiles_of(head));
    if (first_tile >= end) return;
    float* q = reinterpret_cast<float*>(thread_scratch(query_floats() * int64_t{sizeof(float)}));
    load_queries(head, q);
    compute_tiles(
        head, index, q, first_tile, end,
        [&](TileTask& task, int tile) {
          task.partials = partial_at(head, 0, tile);
          task.partial_stride = int64_t{tiles_} * width_;
        },
        [](int) {});
  }

  // A low-bit set is attended to by tiles or by blocks of pages.
  int max_low_bit_partials() const { return low_bit_.max_tiles() + low_bit_blocks_.max_blocks(); }

  float* low_bit_partial_at(int index, int query_in_group, int tile) const {
    const int64_t query = int64_t{index} * layout_.gqa_group + query_in_group;
    return params_.low_bit_partials + (query * max_low_bit_partials() + tile) * width_;
  }

  void compute_low_bit_partials(int index, int first_tile) {
    if (skipped(index)) return;
    const int end = std::min(first_tile + kTaskTiles, low_bit_.tiles(index));
    const int64_t tokens = low_bit_.compute(
        index, first_tile, end,
        [&](LowBitTask& task, int tile) {
          task.partials = low_bit_partial_at(index, 0, tile);
          task.partial_stride = int64_t{max_low_bit_partials()} * width_;
        },
        [](int) {});
    device_bytes_ += low_bit_bytes(layout_, tokens);
  }

  void compute_low_bit_blocks() {
    const StepParams& step = params_.step;
    const int blocks = low_bit_blocks_.max_blocks();
    parallel_for(0, step.count * blocks, [&](int task) {
      const int sequence = task / blocks;
      const int block = task % blocks;
      const int first = sequence * layout_.kv_heads + step.first_head();
      if (skipped(first) || block >= low_bit_blocks_.blocks(first)) return;
      const int64_t stride = int64_t{blocks} * width_;
      device_bytes_ += low_bit_blocks_.compute(
          sequence, {step.first_head(), step.first_head() + step.head_count()}, block,
          {low_bit_partial_at(first, 0, block), stride * layout_.gqa_group, stride});
    });
  }

  // The carried state, or `scratch` if there is only one wave and no carried state.
  float* open_state(const Head& head, float* scratch) const {
    const int64_t query =
        int64_t{head.sequence} * layout_.query_heads() + head.kv_head * layout_.gqa_group;
    float* state = params_.state != nullptr ? params_.state + query * width_ : scratch;
    if (params_.first_wave) {
      for (int i = 0; i < layout_.gqa_group; ++i) {
        clear_softmax(state + i * width_, layout_.row.value_dim);
      }
    }
    return state;
  }

  void fold_partials(int index) {
    if (skipped(index)) return;
    const Head head = head_at(index);
    float* scratch = reinterpret_cast<float*>(
        thread_scratch(layout_.gqa_group * width_ * int64_t{sizeof(float)}));
    float* state = open_state(head, scratch);
    for (int i = 0; i < layout_.gqa_group; ++i) {
      for (int tile = 0; tile < tiles_of(head); ++tile) {
        bodies_.merge(state + i * width_, partial_at(head, i, tile), layout_.row.value_dim);
      }
      const int low_bit = low_bit_.tiles(index) + low_bit_blocks_.blocks(index);
      for (int tile = 0; tile < low_bit; ++tile) {
        bodies_.merge(state + i * width_, low_bit_partial_at(index, i, tile),
                      layout_.row.value_dim);
      }
    }
    if (params_.last_wave) write_out(head, state);
  }

  void attend_at_once(int index) {
    if (skipped(index)) return;
    const Head head = head_at(index);
    const int64_t group_floats = layout_.gqa_group * int64_t{width_};
    const int64_t floats = query_floats() + 2 * group_floats;
    float* q = reinterpret_cast<float*>(thread_scratch(floats * int64_t{sizeof(float)}));
    float* partials = q + query_floats();
    float* state = open_state(head, partials + group_floats);
    load_queries(head, q);
    compute_tiles(
        head, index, q, 0, tiles_of(head),
        [&](TileTask& task, int) {
          task.partials = partials;
          task.partial_stride = width_;
        },
        [&](int) { merge_group(state, partials); });
    const int64_t low_bit_tokens = low_bit_.compute(
        index, 0, low_bit_.tiles(index),
        [&](LowBitTask& task, int) {
          task.partials = partials;
          task.partial_stride = width_;
        },
        [&](int) { merge_group(state, partials); });
    device_bytes_ += low_bit_bytes(layout_, low_bit_tokens);
    for (int block = 0; block < low_bit_blocks_.blocks(index); ++block) {
      device_bytes_ += low_bit_blocks_.compute(head.sequence, {head.kv_head, head.kv_head + 1},
                                               block, {partials, 0, width_});
      merge_group(state, partials);
    }
    if (params_.last_wave) write_out(head, state);
  }

  void merge_group(float* state, const float* partials) const {
    for (int i = 0; i < layout_.gqa_group; ++i) {
      bodies_.merge(state + i * width_, partials + i * width_, layout_.row.value_dim);
    }
  }

  void write_out(const Head& head, const float* state) {
    const int token = params_.step.sequences[head.sequence].first_token;
    for (int i = 0; i < layout_.gqa_group; ++i, state += width_) {
      const int query = head.kv_head * layout_.gqa_group + i;
      const int64_t at = params_.out.offset(token, query);
      const bool empty = state[0] == minus_infinity();
      store_quotients(state + kSoftmaxHeader, empty ? 1.0f : state[1], layout_.row.value_dim,
                      params_.out.dtype, params_.out.data, at);
      if (params_.lse != nullptr) {
        params_.lse[int64_t{token} * layout_.query_heads() + query] =
            empty ? minus_infinity() : state[0] + std::log(state[1]);
      }
    }
    device_bytes_ += output_bytes(layout_, layout_.gqa_group, params_.out.dtype);
  }

  const RowBodies& bodies_;
  const AttendParams& params_;
  const CacheLayout& layout_;
  const LowBitTiles low_bit_;
  const LowBitBlocks low_bit_blocks_;
  const int wave_;
  const int tiles_;
  const int width_;  // floats of a partial or state
  const int64_t q_stride_;
  const int64_t bf16_stride_;
  const int64_t code_stride_;
  const bool uses_bf16_;
  std::atomic<uint64_t> device_bytes_{0};
};

}  // namespace

KernelWork attend_on(Target target, const AttendParams& params) {
  return AttendCall(target, params).run();
}

template <>
KernelWork run(const AttendParams& params) {
  return attend_on(active_target(), params);
}

}  // namespace fasa::cpu
