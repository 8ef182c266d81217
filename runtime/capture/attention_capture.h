// Captures the keys and queries that calibration needs while a text runs through a model.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/geometry.h"
#include "runtime/calibrate/calibrate_samples.h"
#include "runtime/llm/compute/model.h"

namespace fasa {

// Layers [first, end).
struct LayerRange {
  int first = 0, end = 0;
  bool holds(int layer) const { return layer >= first && layer < end; }
};

// The rotated keys of all tokens and the rotated queries at the sampled positions, in f32. Host
// memory: bytes().
class AttentionCapture : public LayerObserver {
 public:
  // `positions`: rising, each below `tokens`. Without a range: all layers.
  AttentionCapture(const Geometry& geometry, int64_t tokens, std::vector<int32_t> positions);
  AttentionCapture(const Geometry& geometry, int64_t tokens, std::vector<int32_t> positions,
                   LayerRange layers);
  // Bytes of one layer.
  static uint64_t bytes(const Geometry& geometry, int64_t tokens, size_t positions);

  void on_layer(int layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                int64_t start_position) override;

  // Moves out the samples of one layer (of the range) and KV head. Call once for each.
  HeadSamples take(int layer, int kv_head);

 private:
  void take_keys(int layer, const ConstTensorView& k, int64_t start_position);
  HeadSamples& samples(int layer, int kv_head) {
    return samples_[static_cast<size_t>((layer - layers_.first) * geometry_.kv_heads + kv_head)];
  }

  Geometry geometry_;
  std::vector<int32_t> positions_;
  LayerRange layers_;
  std::vector<HeadSamples> samples_;  // [layers of the range][kv_heads]
};

}  // namespace fasa
