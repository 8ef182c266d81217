// The low-bit set's part of FAC: finds the codes of a tile's tokens for the bodies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/row_bodies.h"
#include "kernels/params.h"

namespace fasa::cpu {

class LowBitTiles {
 public:
  LowBitTiles(const RowBodies& bodies, const AttendParams& params)
      : bodies_(bodies), params_(params), layout_(params.step.layout) {}

  // Tiles of the largest low-bit set there may be; 0 where there is none.
  int max_tiles() const { return (params_.low_bit.capacity + kTileTokens - 1) / kTileTokens; }
  // Tiles of one (sequence, KV head), by flat index.
  int tiles(int index) const { return (size(index) + kTileTokens - 1) / kTileTokens; }
  int size(int index) const {
    return params_.low_bit.capacity == 0 ? 0 : params_.low_bit.sizes[index];
  }
  // Tiles [begin, end) for all query heads of the GQA group; place(task, tile) says where a tile's
  // partials go, done(tile) takes them. Returns the tiles' tokens.
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
  // And calls for what it finds: a tile's tokens lie in as many pages, of which each is several
  // lines that no hardware foresees. Reads nothing of sealed pages, not even their bases, for which
  // it would have to wait (1024 low-bit tokens of 8 heads on two threads: 282 us, without 237). Two
  // tiles ahead in place of one, into L2 alone, or spread over the computing of the tile before
  // make no difference (bench/low_bit_set_cost).
  void find(int index, int tile, LowBitTile* found) const;
  // In f32, at place `place` of the thread's own.
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
