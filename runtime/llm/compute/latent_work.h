// Projections of multi-head latent attention in the absorbed form: see LatentShape. A token's key
// is [rotary_dims, latent], the rotated part first.
#pragma once

#include <cstdint>

#include "runtime/llm/compute/engine_parts.h"
#include "runtime/llm/compute/work_sink.h"

namespace fasa {

// A step's work in layers with MLA. Holds references: all arguments must outlive it.
class LatentWork {
 public:
  LatentWork(const EngineParts& parts, RowRuns runs, WorkSink& sink)
      : parts_(parts), runs_(runs), tokens_(rows_of(runs)), sink_(sink) {}

  // The normalised input -> [tokens, query_heads, head_dim], rotated, tokens `stride` elements
  // apart.
  void queries(const LatentWeights& weights, std::byte* out, int64_t stride) const;
  // -> [tokens, head_dim].
  void keys(const LatentWeights& weights, std::byte* out, int64_t stride) const;
  // Attention output, one latent per head -> the heads' values, in the activations' input.
  void values(const LatentWeights& weights) const;

 private:
  const std::byte* query_input(const LatentWeights& weights) const;
  void project(const Matrix& matrix, const std::byte* x, float* y) const {
    sink_.project(matrix, x, runs_, matrix.outputs(), y);
  }
  void convert(HeadsParams heads) const;  // fills in the fields common to all calls
  HeadsParams rotated(int heads) const;
  // Calls with (first head, heads) for each batch of heads that the sink takes at once.
  template <typename Part>
  void for_heads(const Part& part) const;

  const EngineParts& parts_;
  RowRuns runs_;
  int64_t tokens_;
  WorkSink& sink_;
};

}  // namespace fasa
