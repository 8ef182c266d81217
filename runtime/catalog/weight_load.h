// What a model moves for each token besides its attention.
#pragma once

#include <cstdint>

#include "runtime/catalog/model_shape.h"

namespace fasa {

// Bytes; 0 for attention alone.
struct WeightLoad {
  uint64_t layer_bytes = 0;       // read per layer and token
  uint64_t fetched_bytes = 0;     // the part of them read over the link: experts in host memory
  uint64_t expert_bytes = 0;      // of all of a layer's experts, if they are in host memory
  uint64_t head_bytes = 0;        // of the output projection
  uint64_t hidden_bytes = 0;      // of the embedding, sent to the device
  uint64_t logit_bytes = 0;       // sent back
  uint64_t layer_operations = 0;  // of matrix products, per layer and token
  uint64_t head_operations = 0;   // for each row of logits
  bool any() const { return layer_bytes > 0; }
};

// The load of weights in 16, 8 or 4 bits on the device; 0: none.
WeightLoad weight_load(const ModelShape& model, int bits);

}  // namespace fasa
