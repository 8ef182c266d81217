// What a model's weights take.
#pragma once

#include <cstdint>

namespace fasa {

// Device memory, scales and zeros included.
struct WeightBytes {
  uint64_t total = 0;  // what is allocated
  uint64_t layers =
      0;              // matrices of all layers that a token reads: of experts as many as it chooses
  uint64_t head = 0;  // the projection to logits
  uint64_t kernel_scratch = 0;  // beside the total, where kernels of a device read packed ones
};

}  // namespace fasa
