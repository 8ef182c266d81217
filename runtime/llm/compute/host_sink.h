// Runs a model's own work on the CPU, immediately, inside one piece of a device's host work.
#pragma once

#include <string>

#include "runtime/llm/compute/engine_parts.h"
#include "runtime/llm/compute/work_sink.h"

namespace fasa {

// Holds references: all arguments must outlive it.
class HostSink final : public WorkSink {
 public:
  explicit HostSink(const EngineParts& parts) : parts_(parts) {}

  KernelWork work() const { return work_; }  // so far

  void run(const RowCalls::Call& call) override;
  void run_linear(const LinearCall& call) override;
  void project(const Matrix& matrix, const std::byte* x, RowRuns runs, int64_t columns,
               float* y) override;
  // One head at a time: its rows are adjacent where a product reads them.
  int heads_at_once(int) const override { return 1; }
  void project_heads(std::span<const Matrix> heads, const std::byte* x, int64_t x_stride,
                     RowRuns runs, float* y) override;
  void mix_experts(const ExpertLayerWeights& layer, const std::byte* router_input,
                   RowRuns runs) override;

 private:
  const EngineParts& parts_;
  KernelWork work_ = {};
};

// The instruction set that oneDNN uses for projections, as text for users: "avx512_core_bf16 (AMX
// is announced but does not work)".
std::string host_projections_note();

}  // namespace fasa
