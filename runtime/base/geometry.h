// The shape of a model's attention, as the KV cache sees it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/linear_shape.h"

namespace fasa {

// Which two dimensions of a head RoPE rotates together; see Geometry::chunk_dims.
enum class RotaryLayout : uint8_t { kHalf, kInterleaved };

// KV heads [first, first + count) of a model: a tensor-parallel rank's part, with their query
// heads.
struct HeadRange {
  int first = 0;
  int count = 0;
  bool operator==(const HeadRange&) const = default;
};

// KV heads of one layer.
struct HeadShape {
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int rotary_dims = 0;
  bool operator==(const HeadShape&) const = default;
};

// The layer whose keys and values `layer` attends to, if only the first `storing` layers have some:
// itself, or the last of them that has, like `layer`, a window or none. -1: there is no such layer.
// `windows`: see Geometry.
int kv_layer_of(std::span<const int> windows, int storing, int layer);

struct Geometry {
  int layers = 0;
  int kv_heads = 0;
  int query_heads = 0;  // a multiple of kv_heads
  int key_dim = 0;      // even
  int value_dim = 0;
  int rotary_dims = 0;  // the first dimensions of a key; the rest is not rotated
  RotaryLayout rotary_layout = RotaryLayout::kHalf;
  float scale = 0;           // of q·k before the softmax, 1/sqrt(key_dim) as a rule
  std::vector<int> windows;  // per layer, in tokens, 0 = none; empty = none anywhere
  // Layers with a window have these KV heads if they differ from the others'; kv_heads 0 = they do
  // not. The query heads are as many.
  HeadShape window_heads = {};
  // The last layers that have queries alone; see kv_layer(). They store no keys and values.
  int shared_layers = 0;
  // ALiBi: slope · (key position - query position) is added to scale · q·k of each query head.
  // [query_heads], 0 or more; empty = none.
  std::vector<float> alibi_slopes = {};
  // Soft cap: a score s, scaled and with ALiBi's part, becomes score_cap · tanh(s / score_cap).
  // 0 = none.
  float score_cap = 0;
  // Layers with linear attention beside these: not counted in `layers`, only a state of a sequence.
  LinearShape linear = {};

  int gqa_group() const { return query_heads / kv_heads; }
  int window(int layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
  int storing_layers() const { return layers - shared_layers; }
  bool is_shared(int layer) const { return layer >= storing_layers(); }
  // The layer whose keys and values a layer attends to: an earlier one if it is_shared().
  int kv_layer(int layer) const { return kv_layer_of(windows, storing_layers(), layer); }
  bool has_window_heads() const { return window_heads.kv_heads > 0; }
  HeadShape heads(int layer) const {
    if (has_window_heads() && window(layer) > 0) return window_heads;
    return {kv_heads, key_dim, value_dim, rotary_dims};
  }
  // Pairs of dimensions of a head, what `tip_chunks` counts: the FCs, two dimensions that RoPE
  // rotates together, then pairs of neighbours that are not rotated.
  int chunks() const { return key_dim / 2; }
  // A dimension that is not rotated is ranked alone: second = first.
  struct Pair {
    int first, second;
    bool single() const { return first == second; }
  };
  // The two dimensions of pair `chunk`: half (i, i + rotary_dims/2), interleaved (2i, 2i+1).
  Pair chunk_dims(int chunk) const;
  // The units that calibration ranks: the FCs, then each unrotated dimension alone.
  std::vector<Pair> ranked_chunks() const;

  // The part of these KV heads as a geometry of its own, with heads counted from 0. KV heads share
  // nothing, so a runtime of it gives the bits of the whole. Throws UsageError for a range that is
  // empty or beyond the heads.
  Geometry share(HeadRange heads) const;
  // One layer as a model of its own, with its heads.
  Geometry only_layer(int layer) const;

  // Throws UsageError naming the invalid field.
  void validate() const;
};

}  // namespace fasa
