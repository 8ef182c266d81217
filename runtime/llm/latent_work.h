// Multi-head latent attention's projections, in the absorbed form: see LatentShape. A token's key
// is [rotary_dims, latent], its rotated part first.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/llm/activations.h"
#include "runtime/llm/model_config.h"
#include "runtime/llm/weights.h"

namespace fasa {

// Of a step's tokens. References: all outlive the work. Each returns the bytes that it
// reads and writes.
class LatentWork {
 public:
  LatentWork(const ModelConfig& config, const Activations& activations, DType dtype, RowRuns runs)
      : config_(config),
        activations_(activations),
        dtype_(dtype),
        runs_(runs),
        tokens_(rows_of(runs)) {}

  // The normalised input -> [tokens, query_heads, head_dim], rotated, tokens `stride` elements
  // apart.
  uint64_t queries(const LatentWeights& weights, std::byte* out, int64_t stride) const;
  // -> [tokens, head_dim].
  uint64_t keys(const LatentWeights& weights, std::byte* out, int64_t stride) const;
  // What attention gave, latents per head -> the heads' values, in the activations' input.
  uint64_t values(const LatentWeights& weights) const;

 private:
  void rotate(float* part, int64_t row) const;
  const std::byte* query_input(const LatentWeights& weights, uint64_t* bytes) const;

  const ModelConfig& config_;
  const Activations& activations_;
  DType dtype_;
  RowRuns runs_;
  int64_t tokens_;
};

}  // namespace fasa
