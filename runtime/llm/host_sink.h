// A model's own work done at once by the processor, within one piece of host work of a device.
#pragma once

#include <string>

#include "runtime/llm/engine_parts.h"
#include "runtime/llm/work_sink.h"

namespace fasa {

// References: all outlive it.
class HostSink final : public WorkSink {
 public:
  explicit HostSink(const EngineParts& parts) : parts_(parts) {}

  KernelWork work() const { return work_; }  // so far

  void run(const RowCalls::Call& call) override;
  void project(const Matrix& matrix, const std::byte* x, RowRuns runs, int64_t columns,
               float* y) override;
  // One: its rows fit beside each other where a product reads them.
  int heads_at_once(int) const override { return 1; }
  void project_heads(std::span<const Matrix> heads, const std::byte* x, int64_t x_stride,
                     RowRuns runs, float* y) override;
  void mix_experts(const ExpertLayerWeights& layer, RowRuns runs) override;

 private:
  const EngineParts& parts_;
  KernelWork work_ = {};
};

// What oneDNN uses for its projections, for people: "avx512_core_bf16 (AMX is announced but does
// not work)".
std::string host_projections_note();

}  // namespace fasa
