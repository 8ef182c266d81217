// The properties of a model that a plan needs: attention and the size of its weights.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/geometry.h"

namespace fasa {

struct ModelShape {
  std::string name;
  Geometry geometry;
  int64_t hidden = 0;
  // With experts, inputs per layer or MLPs of several widths: width read by a token, mean over
  // layers, where each input per layer counts as the part of an MLP with as many weights. With
  // linear attention the layers without rows count as a part of those that have some: this is their
  // width of MLP with as many weights.
  int64_t intermediate = 0;
  int64_t mlp_width = 0;         // then of the widest MLP; 0: intermediate
  int64_t idle_parameters = 0;   // experts that a token does not choose, all layers
  int64_t layer_embeddings = 0;  // parameters of the embeddings per layer, which stay on the host
  int64_t vocab = 0;
  int64_t max_positions = 0;
  bool tied_embeddings = false;  // input and output embeddings are one matrix

  // Parameters of all matrices; norms and biases (about 0.01 %) are not counted.
  int64_t parameters() const;
  int64_t layer_parameters() const;  // of one layer, read by a token; mean over layers
  int64_t head_parameters() const;   // of the output projection
  // Parameters in device memory: all except the input embeddings, which stay on the host.
  int64_t device_parameters() const;
};

// Bytes of the parameters in 16, 8 or 4 bits; below 16, with a 16-bit scale per 64 weights.
uint64_t weight_bytes(int64_t parameters, int bits);

// Device memory for activations of a step of `tokens` tokens with logits for one of them, in bf16:
// residual and projection results in f32, their inputs in bf16.
uint64_t activation_bytes(const ModelShape& model, int64_t tokens);

}  // namespace fasa
