// Records whole decode steps as device graphs and launches them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "runtime/api/sequences/step_graphs.h"
#include "runtime/api/sequences/step_memory.h"
#include "runtime/api/sequences/step_streams.h"
#include "scheduler/prefetch/prefetch_control.h"

namespace fasa {

class StepRecorder {
 public:
  // `wanted`: device.graphs. The others outlive the recorder.
  StepRecorder(StepStreams& streams, PrefetchControl& prefetch, StepMemory& memory, bool wanted)
      : streams_(streams),
        engine_(streams.engine()),
        prefetch_(prefetch),
        memory_(memory),
        wanted_(wanted) {}

  // Implements Runtime::run_layers; the step is open and nothing was appended.
  void run(StreamView stream, std::span<const uint64_t> shape, const std::function<void()>& layers);
  void clear() { graphs_.clear(); }
  uint64_t bytes() const { return graphs_.bytes(engine_.device()); }
  GraphMetrics metrics() const;

 private:
  std::optional<StepKey> key(StreamView stream, std::span<const uint64_t> shape) const;
  // Throws the errors of `layers`, DeviceError and BudgetError; the step is then as before.
  Graph record_layers(StreamView stream, const std::function<void()>& layers, bool* attends);
  // Records into the entry, or marks the entry as refused.
  void record(StepGraphs::Entry& entry, StreamView stream, const std::function<void()>& layers);
  bool launch(const StepGraphs::Entry& entry, StreamView stream);

  StepStreams& streams_;
  StepEngine& engine_;
  PrefetchControl& prefetch_;
  StepMemory& memory_;
  const bool wanted_;
  bool refused_ = false;  // the warning was logged
  StepGraphs graphs_;     // of the executor's streams
  GraphMetrics metrics_;
};

}  // namespace fasa
