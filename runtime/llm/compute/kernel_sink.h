// Runs a model's own work as kernels of a device. Plain weights take one product for rows of a
// phase, packed ones are read as stored in decode, and unpacked slab by slab into scratch memory in
// prefill. A decoded row has the same bits in any step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/llm/compute/engine_parts.h"
#include "runtime/llm/compute/work_sink.h"

namespace fasa {

// Holds references: all arguments must outlive it.
class KernelSink final : public WorkSink {
 public:
  // Scratch shared by all projections, which run in order on one stream.
  struct Scratch {
    std::byte* product = nullptr;  // DeviceTraits::project_scratch
    std::byte* packed = nullptr;   // WeightBytes::kernel_scratch
  };
  KernelSink(const EngineParts& parts, const Scratch& scratch, OperationTag tag)
      : parts_(parts), scratch_(scratch), tag_(tag) {}

  void run(const RowCalls::Call& call) override;
  void run_linear(const LinearCall& call) override;
  void project(const Matrix& matrix, const std::byte* x, RowRuns runs, int64_t columns,
               float* y) override;
  int heads_at_once(int heads) const override { return heads; }
  void project_heads(std::span<const Matrix> heads, const std::byte* x, int64_t x_stride,
                     RowRuns runs, float* y) override;
  void mix_experts(const ExpertLayerWeights& layer, const std::byte* router_input,
                   RowRuns runs) override;

 private:
  struct Rows {
    const std::byte* x;
    int64_t rows;
    float* y;
  };
  void enqueue(const KernelCall& call) const { parts_.device.enqueue(call, parts_.stream, tag_); }
  void products(const Rows& all, RowRuns runs, ProjectParams shape) const;
  void product(const Rows& rows, ProjectParams shape) const;
  void decode(const Matrix::Part& part, const Rows& rows, int64_t columns) const;
  void prefill(const Matrix::Part& part, const Rows& all, RowRuns runs, int64_t columns) const;

  const EngineParts& parts_;
  Scratch scratch_;
  OperationTag tag_;
};

}  // namespace fasa
