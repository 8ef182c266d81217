// Input of calibration: the keys and sampled queries of one layer and KV head.
#pragma once

#include <tbb/cache_aligned_allocator.h>

#include <cstdint>
#include <vector>

#include "runtime/base/geometry.h"

namespace fasa {

// Aligned to cache lines: a vector that crosses one takes two loads.
template <typename T>
using AlignedVector = std::vector<T, tbb::cache_aligned_allocator<T>>;

struct HeadSamples {
  int gqa_group = 1;  // query heads per KV head
  int key_dim = 0;
  int window = 0;       // of the layer, tokens; 0 = none
  float scale = 1;      // multiplies q·k before the softmax
  float score_cap = 0;  // caps q·k before the scale; 0 = none
  int64_t tokens = 0;
  std::vector<float> slopes;  // ALiBi, [group], applied before the scale; empty = none
  // The units to rank: the dimensions of each FC, and single dimensions, as in
  // Geometry::ranked_chunks().
  std::vector<Geometry::Pair> chunks;
  AlignedVector<float> keys;       // [key_dim][tokens], rotated
  std::vector<int32_t> positions;  // [queries]; a query sees the tokens up to its position
  std::vector<float> queries;      // [queries][group][key_dim], rotated

  size_t query_count() const { return positions.size(); }
  const float* key_plane(int dim) const { return keys.data() + dim * tokens; }
  const float* query(size_t index, int head) const {
    return queries.data() + (index * static_cast<size_t>(gqa_group) + static_cast<size_t>(head)) *
                                static_cast<size_t>(key_dim);
  }
  // The tokens visible to a query: [first, end).
  int64_t visible_end(size_t index) const { return int64_t{positions[index]} + 1; }
  int64_t visible_first(size_t index) const {
    const int64_t first = visible_end(index) - window;
    return window == 0 || first < 0 ? 0 : first;
  }
};

}  // namespace fasa
