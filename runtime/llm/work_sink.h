// Where a model's own work goes, call by call: to a device that has kernels for it (KernelSink), or
// to host code that does it at once (HostSink). What the work is, is said once (LayerWork).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/calls.h"
#include "runtime/llm/matrix.h"
#include "runtime/llm/weights.h"

namespace fasa {

class WorkSink {
 public:
  virtual ~WorkSink() = default;

  virtual void run(const RowCalls::Call& call) = 0;
  // x [rows, inputs], dense -> the first `columns` outputs of y [rows, matrix.outputs()]. Of the
  // other outputs some may be written.
  virtual void project(const Matrix& matrix, const std::byte* x, RowRuns runs, int64_t columns,
                       float* y) = 0;
  // How many of a layer's `heads` project_heads takes in one call.
  virtual int heads_at_once(int heads) const = 0;
  // Each head by its own matrix: x [tokens, heads, inputs], tokens `x_stride` elements apart ->
  // y [tokens, heads, outputs], dense. May use the activations' head_input().
  virtual void project_heads(std::span<const Matrix> heads, const std::byte* x, int64_t x_stride,
                             RowRuns runs, float* y) = 0;
  // The normalised input -> the activations' mixed().
  virtual void mix_experts(const ExpertLayerWeights& layer, RowRuns runs) = 0;
};

}  // namespace fasa
