// Keeps what calibration needs of a model's attention while a text runs through it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/geometry.h"
#include "runtime/calibrate_samples.h"
#include "runtime/llm/model.h"

namespace fasa {

// The rotated keys of all tokens and the rotated queries at the sampled positions, in f32. Host
// memory: layers x KV heads x key_dim x tokens x 4 bytes.
class AttentionCapture : public LayerObserver {
 public:
  // `positions`: rising, each below `tokens`.
  AttentionCapture(const Geometry& geometry, int64_t tokens, std::vector<int32_t> positions);

  void on_layer(int layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                int64_t start_position) override;

  // The samples of one layer and KV head, handed over: each once.
  HeadSamples take(int layer, int kv_head);

 private:
  HeadSamples& samples(int layer, int kv_head) {
    return samples_[static_cast<size_t>(layer * geometry_.kv_heads + kv_head)];
  }

  Geometry geometry_;
  std::vector<int32_t> positions_;
  std::vector<HeadSamples> samples_;  // [layers][kv_heads]
};

}  // namespace fasa
