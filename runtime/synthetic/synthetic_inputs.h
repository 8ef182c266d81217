// Queries, keys and values without a model: noise if they are computed with, else untouched memory.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/device.h"
#include "runtime/base/geometry.h"
#include "runtime/base/tensor_view.h"

namespace fasa {

class SyntheticInputs {
 public:
  // For `tokens` tokens; `noisy`: filled with bf16 noise that changes with each shift().
  SyntheticInputs(Device& device, const Geometry& geometry, int64_t tokens, bool noisy,
                  uint64_t seed, StreamView stream);

  // Enqueues new noise for the first `tokens` tokens.
  void shift(int64_t tokens, StreamView stream);
  ConstTensorView q(int layer, int64_t tokens) const;
  ConstTensorView k(int layer, int64_t tokens) const;
  ConstTensorView v(int layer, int64_t tokens) const;
  TensorView out(int layer, int64_t tokens) const;

 private:
  // The largest of all layers.
  struct Bytes {
    size_t query, key, value, out;
  };
  Bytes bytes_of(int64_t tokens) const;
  Device& device_;
  const Geometry& geometry_;
  std::vector<uint16_t> pool_;  // must outlive the copies enqueued from it
  uint64_t round_ = 0;
  Buffer q_;
  Buffer k_;
  Buffer v_;
  Buffer out_;
};

}  // namespace fasa
