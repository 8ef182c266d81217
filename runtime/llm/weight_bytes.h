// What a model's weights take.
#pragma once

#include <cstdint>

namespace fasa {

// Device memory, scales and zeros included; experts may lie in host memory.
struct WeightBytes {
  uint64_t total = 0;  // what is allocated on the device
  uint64_t host = 0;   // and in host memory
  // Matrices of all layers that a token reads: of experts as many as it chooses.
  uint64_t layers = 0;
  uint64_t experts = 0;  // of all layers, those that a router chooses from, wherever they lie
  uint64_t chosen =
      0;              // of them, what a token reads: part of `layers`, unless they lie on the host
  uint64_t head = 0;  // the projection to logits
  uint64_t kernel_scratch = 0;  // beside the total, where kernels of a device read packed ones

  uint64_t fetched() const { return host > 0 ? chosen : 0; }  // by a token, over the link
};

}  // namespace fasa
