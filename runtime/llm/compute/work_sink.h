// Receives a model's own work, call by call: KernelSink enqueues it on a device with kernels,
// HostSink runs it on the CPU. LayerWork issues the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/calls.h"
#include "kernels/linear_params.h"
#include "runtime/llm/compute/matrix.h"
#include "runtime/llm/compute/weights.h"

namespace fasa {

class WorkSink {
 public:
  virtual ~WorkSink() = default;

  virtual void run(const RowCalls::Call& call) = 0;
  virtual void run_linear(const LinearCall& call) = 0;
  // x [rows, inputs], dense -> the first `columns` outputs of y [rows, matrix.outputs()]. Some of
  // the other outputs may be overwritten.
  virtual void project(const Matrix& matrix, const std::byte* x, RowRuns runs, int64_t columns,
                       float* y) = 0;
  // Heads, of a layer's `heads`, that project_heads takes per call.
  virtual int heads_at_once(int heads) const = 0;
  // Multiplies each head by its own matrix: x [tokens, heads, inputs], tokens `x_stride` elements
  // apart -> y [tokens, heads, outputs], dense. May use the activations' head_input().
  virtual void project_heads(std::span<const Matrix> heads, const std::byte* x, int64_t x_stride,
                             RowRuns runs, float* y) = 0;
  // The normalised input -> the activations' mixed(). The router has an input of its own.
  virtual void mix_experts(const ExpertLayerWeights& layer, const std::byte* router_input,
                           RowRuns runs) = 0;
};

}  // namespace fasa
