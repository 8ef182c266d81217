#include "runtime/base/geometry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "runtime/base/error.h"

namespace fasa {
namespace {

Geometry valid() {
  return {.layers = 3,
          .kv_heads = 2,
          .query_heads = 6,
          .key_dim = 10,
          .value_dim = 7,
          .rotary_dims = 6,
          .rotary_layout = RotaryLayout::kHalf,
          .scale = 0.3f,
          .windows = {}};
}

TEST(Geometry, HalfLayoutPairsAcrossTheRotaryPart) {
  const Geometry geometry = valid();
  EXPECT_EQ(geometry.chunks(), 5);
  EXPECT_EQ(geometry.chunk_dims(0).first, 0);
  EXPECT_EQ(geometry.chunk_dims(0).second, 3);
  EXPECT_EQ(geometry.chunk_dims(2).first, 2);
  EXPECT_EQ(geometry.chunk_dims(2).second, 5);
  // Dimensions that are not rotated are paired with their neighbours.
  EXPECT_EQ(geometry.chunk_dims(3).first, 6);
  EXPECT_EQ(geometry.chunk_dims(4).second, 9);
}

TEST(Geometry, InterleavedLayoutPairsNeighbours) {
  Geometry geometry = valid();
  geometry.rotary_layout = RotaryLayout::kInterleaved;
  EXPECT_EQ(geometry.chunk_dims(1).first, 2);
  EXPECT_EQ(geometry.chunk_dims(1).second, 3);
}

TEST(Geometry, ChunksCoverEveryDimensionOnce) {
  for (const RotaryLayout layout : {RotaryLayout::kHalf, RotaryLayout::kInterleaved}) {
    for (int rotary = 0; rotary <= 10; rotary += 2) {
      Geometry geometry = valid();
      geometry.rotary_layout = layout;
      geometry.rotary_dims = rotary;
      std::set<int> dims;
      for (int chunk = 0; chunk < geometry.chunks(); ++chunk) {
        dims.insert(geometry.chunk_dims(chunk).first);
        dims.insert(geometry.chunk_dims(chunk).second);
      }
      EXPECT_EQ(dims.size(), 10u) << rotary;
      EXPECT_EQ(*dims.begin(), 0);
      EXPECT_EQ(*dims.rbegin(), 9);
    }
  }
}

TEST(Geometry, SharedLayersAttendToTheLastOfTheirKind) {
  Geometry geometry = valid();
  geometry.layers = 6;
  geometry.shared_layers = 3;
  const auto sources = [&] {
    std::vector<int> layers;
    for (int layer = 0; layer < geometry.layers; ++layer)
      layers.push_back(geometry.kv_layer(layer));
    return layers;
  };
  EXPECT_EQ(sources(), (std::vector{0, 1, 2, 2, 2, 2}));
  geometry.windows = {9, 0, 9, 9, 0, 9};
  EXPECT_NO_THROW(geometry.validate());
  EXPECT_EQ(sources(), (std::vector{0, 1, 2, 2, 1, 2}));
  EXPECT_FALSE(geometry.is_shared(2));
  EXPECT_TRUE(geometry.is_shared(3));
  EXPECT_EQ(geometry.only_layer(4).shared_layers, 0);
  for (const int shared : {-1, 5, 6}) {  // 5: no layer without a window is left
    geometry.shared_layers = shared;
    EXPECT_THROW(geometry.validate(), UsageError) << shared;
  }
}

TEST(Geometry, WhatIsNotRotatedIsRankedByItself) {
  const auto ranked = [](int rotary) {
    Geometry geometry = valid();
    geometry.rotary_dims = rotary;
    std::vector<std::pair<int, int>> chunks;
    for (const Geometry::Pair& pair : geometry.ranked_chunks()) {
      EXPECT_EQ(pair.single(), pair.first >= rotary);
      chunks.emplace_back(pair.first, pair.second);
    }
    return chunks;
  };
  using Chunks = std::vector<std::pair<int, int>>;
  EXPECT_EQ(ranked(6), (Chunks{{0, 3}, {1, 4}, {2, 5}, {6, 6}, {7, 7}, {8, 8}, {9, 9}}));
  EXPECT_EQ(ranked(10), (Chunks{{0, 5}, {1, 6}, {2, 7}, {3, 8}, {4, 9}}));
  EXPECT_EQ(ranked(0).size(), 10u);
}

TEST(Geometry, WindowsAreNoneOrOnePerLayer) {
  Geometry geometry = valid();
  EXPECT_EQ(geometry.window(2), 0);
  geometry.windows = {0, 128, 5};
  geometry.validate();
  EXPECT_EQ(geometry.window(1), 128);
}

TEST(Geometry, LayersWithAWindowMayHaveOtherHeads) {
  Geometry geometry = valid();
  const HeadShape usual{geometry.kv_heads, geometry.key_dim, geometry.value_dim,
                        geometry.rotary_dims};
  geometry.windows = {0, 128, 5};
  EXPECT_EQ(geometry.heads(1), usual);
  geometry.window_heads = {1, 6, 4, 2};
  geometry.validate();
  EXPECT_EQ(geometry.heads(0), usual);
  EXPECT_EQ(geometry.heads(1), (HeadShape{1, 6, 4, 2}));
  const Geometry alone = geometry.only_layer(1);
  alone.validate();
  EXPECT_EQ(alone.heads(0), geometry.heads(1));
  EXPECT_EQ(alone.gqa_group(), geometry.query_heads);
  EXPECT_THROW(geometry.share({0, 1}), UsageError);
}

TEST(Geometry, ImpossibleFieldsAreNamed) {
  valid().validate();
  const auto rejects = [](const std::string& field, const std::function<void(Geometry&)>& change) {
    Geometry geometry = valid();
    change(geometry);
    try {
      geometry.validate();
      ADD_FAILURE() << field << " was taken";
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("geometry." + field + " = ", 0), 0u)
          << error.what();
    }
  };
  rejects("layers", [](Geometry& g) { g.layers = 0; });
  rejects("kv_heads", [](Geometry& g) { g.kv_heads = 0; });
  rejects("query_heads", [](Geometry& g) { g.query_heads = 5; });
  rejects("query_heads", [](Geometry& g) { g.query_heads = 0; });
  rejects("key_dim", [](Geometry& g) { g.key_dim = 9; });
  rejects("key_dim", [](Geometry& g) { g.key_dim = 1026; });
  rejects("value_dim", [](Geometry& g) { g.value_dim = 0; });
  rejects("rotary_dims", [](Geometry& g) { g.rotary_dims = 12; });
  rejects("rotary_dims", [](Geometry& g) { g.rotary_dims = 3; });
  rejects("scale", [](Geometry& g) { g.scale = 0; });
  rejects("scale", [](Geometry& g) { g.scale = std::numeric_limits<float>::infinity(); });
  rejects("windows", [](Geometry& g) { g.windows = {1, 2}; });
  rejects("alibi_slopes", [](Geometry& g) { g.alibi_slopes = {1, 2}; });
  rejects("score_cap", [](Geometry& g) { g.score_cap = -1; });
  rejects("score_cap", [](Geometry& g) { g.score_cap = NAN; });
  rejects("alibi_slopes", [](Geometry& g) { g.alibi_slopes = {1, 2, 3, 4, 5, -6}; });
  rejects("windows", [](Geometry& g) { g.windows = {1, 2, -3}; });
  rejects("window_heads.key_dim", [](Geometry& g) { g.window_heads = {1, 5, 4, 2}; });
  rejects("window_heads.rotary_dims", [](Geometry& g) { g.window_heads = {1, 6, 4, 8}; });
  rejects("query_heads", [](Geometry& g) { g.window_heads = {4, 6, 4, 2}; });
}

}  // namespace
}  // namespace fasa
