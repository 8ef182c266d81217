// The near set's part of FAC: finds the codes of a tile's tokens for the bodies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/row_bodies.h"
#include "kernels/params.h"

namespace fasa::cpu {

class NearTiles {
 public:
  NearTiles(const RowBodies& bodies, const AttendParams& params)
      : bodies_(bodies), params_(params), layout_(params.step.layout) {}

  // Tiles of the largest near set there may be; 0 where there is none.
  int most_tiles() const { return (params_.near.capacity + kTileTokens - 1) / kTileTokens; }
  // Tiles of one (sequence, KV head), by flat index.
  int tiles(int index) const { return (size(index) + kTileTokens - 1) / kTileTokens; }
  int size(int index) const { return params_.near.capacity == 0 ? 0 : params_.near.sizes[index]; }
  // Calls for what compute() of a tile reads, some tiles ahead: a tile's tokens lie in as many pages,
  // of which each is several lines, that no hardware foresees. Any tile; beyond the last, nothing.
  // Two tiles ahead in place of one, or into L2 alone, make no difference (bench/near_set_cost).
  void prefetch(int index, int tile) const;
  // One tile for all query heads of the group; partials of head h at partials + h * stride. Returns
  // the tile's tokens.
  int compute(int index, int tile, float* partials, int64_t stride) const;

 private:
  struct Page {
    const std::byte* codes;  // null: the page is not sealed
    const std::byte* tail;
    float base;
  };
  Page page_at(int index, int page) const;
  const int32_t* positions_of(int index, int tile) const {
    return params_.near.positions + int64_t{index} * params_.near.capacity + tile * kTileTokens;
  }

  const RowBodies& bodies_;
  const AttendParams& params_;
  const CacheLayout& layout_;
};

}  // namespace fasa::cpu
