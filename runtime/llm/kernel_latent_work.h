// LatentWork as kernels of the device: its projections of single heads are batches, each one call.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/calls.h"
#include "runtime/llm/kernel_projection.h"
#include "runtime/llm/layer_engine.h"

namespace fasa {

inline NormParams params_of(const Norm& norm) {
  return {.kind = norm.kind, .eps = norm.eps, .weight = norm.weight, .bias = norm.bias};
}

// References: all outlive the work.
class KernelLatentWork {
 public:
  KernelLatentWork(const EngineParts& parts, const KernelProjection& projection,
                   const StepShape& step, OperationTag tag)
      : parts_(parts), projection_(projection), step_(step), tag_(tag) {}

  // As LatentWork's.
  void queries(const LatentWeights& weights, std::byte* out, int64_t stride) const;
  void keys(const LatentWeights& weights, std::byte* out, int64_t stride) const;
  void values(const LatentWeights& weights) const;

 private:
  const std::byte* query_input(const LatentWeights& weights) const;
  void project(const Matrix& matrix, const std::byte* x, float* y) const;
  // Every head by its own matrix; x and y [tokens, heads, ...].
  void project_heads(const std::vector<Matrix>& matrices, const std::byte* x, float* y) const;
  void convert(const HeadsParams& heads) const;  // with what all calls share
  HeadsParams rotated(int heads) const;

  const EngineParts& parts_;
  KernelProjection projection_;
  const StepShape& step_;
  OperationTag tag_;
};

}  // namespace fasa
