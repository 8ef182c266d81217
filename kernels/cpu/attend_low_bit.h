// The low-bit set's part of FAC: locates the codes of a tile's tokens for the bodies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/rows/row_bodies.h"
#include "kernels/params.h"

namespace fasa::cpu {

class LowBitTiles {
 public:
  LowBitTiles(const RowBodies& bodies, const AttendParams& params)
      : bodies_(bodies), params_(params), layout_(params.step.layout) {}

  // Tiles of the largest possible low-bit set; 0: none.
  int max_tiles() const { return (params_.low_bit.capacity + kTileTokens - 1) / kTileTokens; }
  // Tiles of one (sequence, KV head), by flat index.
  int tiles(int index) const { return (size(index) + kTileTokens - 1) / kTileTokens; }
  int size(int index) const {
    return params_.low_bit.capacity == 0 ? 0 : params_.low_bit.sizes[index];
  }
  // Computes tiles [begin, end) for all query heads of the GQA group; place(task, tile) sets where
  // a tile's partials go, done(tile) consumes them. Returns the number of tokens.
  template <typename Place, typename Done>
  int64_t compute(int index, int begin, int end, const Place& place, const Done& done) const {
    if (begin >= end) return 0;
    LowBitTask task = task_for();
    LowBitTile tiles[2];
    find(index, begin, &tiles[begin % 2]);
    int64_t tokens = 0;
    for (int at = begin; at < end; ++at) {
      task.tile = &tiles[at % 2];
      if (at + 1 < end) find(index, at + 1, &tiles[(at + 1) % 2]);
      set_scores(index, at, &task);
      place(task, at);
      compute_tile(task);
      done(at);
      tokens += task.tile->tokens;
    }
    return tokens;
  }

 private:
  LowBitTask task_for() const;
  // Also prefetches what it locates: the tokens of a tile lie in as many pages, several lines each,
  // which no hardware predicts. Reads nothing of sealed pages, not even their bases, as that would
  // stall (1024 low-bit tokens of 8 heads on two threads: 282 us, without 237). Prefetching two
  // tiles ahead, only into L2, or spread over the previous tile makes no difference
  // (bench/low_bit_set_cost).
  void find(int index, int tile, LowBitTile* found) const;
  // Reads values in f32, into entry `place` of the thread's buffer.
  const float* read_tail(const std::byte* tail, int slot, int place) const;
  void set_scores(int index, int tile, LowBitTask* task) const;
  void compute_tile(const LowBitTask& task) const;
  const int32_t* positions_of(int index, int tile) const {
    return params_.low_bit.positions + int64_t{index} * params_.low_bit.capacity +
           tile * kTileTokens;
  }

  const RowBodies& bodies_;
  const AttendParams& params_;
  const CacheLayout& layout_;
};

}  // namespace fasa::cpu
