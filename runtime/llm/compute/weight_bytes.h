// Memory that a model's weights take.
#pragma once

#include <cstdint>

namespace fasa {

// Bytes, scales and zeros included. Experts may be in host memory.
struct WeightBytes {
  uint64_t total = 0;  // allocated on the device
  uint64_t host = 0;   // allocated in host memory
  // Matrices that a token reads in all layers; with experts, only the chosen ones.
  uint64_t layers = 0;
  uint64_t experts = 0;         // routed experts of all layers, in device or host memory
  uint64_t chosen = 0;          // read by a token; included in `layers` unless on the host
  uint64_t head = 0;            // the projection to logits
  uint64_t kernel_scratch = 0;  // not in the total: for kernels that read packed weights

  // Adds the memory of a head of multi-token prediction; what a token reads stays the model's.
  void add_head(const WeightBytes& of_head) {
    total += of_head.total;
    host += of_head.host;
  }
  uint64_t fetched() const { return host > 0 ? chosen : 0; }  // per token, over the link
};

}  // namespace fasa
