// What a plan has to know of a model: its attention, and what its weights weigh.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/geometry.h"

namespace fasa {

struct ModelShape {
  std::string name;
  Geometry geometry;
  int64_t hidden = 0;
  int64_t intermediate = 0;     // with experts: what a token goes through, layers' mean
  int64_t idle_parameters = 0;  // of all layers, of experts that a token does not choose
  int64_t vocab = 0;
  int64_t max_positions = 0;
  bool tied_embeddings = false;  // input and output embeddings are one matrix

  // Weights of the matrices; norms and biases, a few in ten thousand, are left out.
  int64_t parameters() const;
  int64_t layer_parameters() const;  // of one layer, that a token reads
  int64_t query_parameters() const;  // of one layer's query projection
  int64_t head_parameters() const;   // of the output projection
  // What the device holds: all but the input embeddings, which stay on the host.
  int64_t device_parameters() const;
};

// Bytes of so many weights in 16, 8 or 4 bits; below 16 with a 16-bit scale for each 64 weights.
uint64_t weight_bytes(int64_t parameters, int bits);

// Device memory between the layers of a step of `tokens` tokens with logits for one of them, in
// bf16: residual and projections' results in f32, their inputs in bf16.
uint64_t activation_bytes(const ModelShape& model, int64_t tokens);

}  // namespace fasa
