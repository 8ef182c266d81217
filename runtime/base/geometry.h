// The shape of a model's attention, as the KV cache sees it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fasa {

// Which two dimensions of a head RoPE rotates together; see Geometry::chunk_dims.
enum class RotaryLayout : uint8_t { kHalf, kInterleaved };

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
  // ALiBi: slope · (key position - query position) is added to scale · q·k of each query head.
  // [query_heads], 0 or more; empty = none.
  std::vector<float> alibi_slopes = {};

  int group() const { return query_heads / kv_heads; }
  int window(int layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
  // Pairs of dimensions of a head, what `tip_chunks` counts: the FCs, two dimensions that RoPE
  // rotates together, then pairs of neighbours that are not rotated.
  int chunks() const { return key_dim / 2; }
  // One dimension that is not rotated stands alone where chunks are ranked: second = first.
  struct Pair {
    int first, second;
    bool single() const { return first == second; }
  };
  // The two dimensions of pair `chunk`: half (i, i + rotary_dims/2), interleaved (2i, 2i+1).
  Pair chunk_dims(int chunk) const;
  // What calibration ranks: the FCs, then every dimension that is not rotated by itself.
  std::vector<Pair> ranked_chunks() const;

  // Throws UsageError naming the field that is impossible.
  void validate() const;
};

}  // namespace fasa
