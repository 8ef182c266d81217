// The streams of a runtime and their work under way: steps, uploads, rows read back. Attributes a
// failure that shows late to the sequences at work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "offload/device.h"
#include "runtime/api/sequences/open_step.h"
#include "runtime/api/sequences/sequence_table.h"
#include "scheduler/step_pipeline.h"

namespace fasa {

class StepStreams {
 public:
  // All arguments must outlive it. `forget` runs before streams are recreated, and must drop
  // everything that refers to the old ones.
  StepStreams(Device& device, const StepSettings& settings, SequenceTable& sequences,
              std::function<void()> forget);

  StreamView control() const { return control_.view(); }  // uploads and repairs before a step
  StepPipeline& pipeline() { return *pipeline_; }
  const StepPipeline& pipeline() const { return *pipeline_; }
  std::array<DescriptorBuffer, 2>& slots() { return slots_; }
  const std::array<DescriptorBuffer, 2>& slots() const { return slots_; }
  std::optional<OpenStep>& step() { return step_; }  // none between steps
  // An event for all work given to the control stream so far, valid until it is recorded again.
  EventView record_tables();
  // Registers the work of a read() on `stream` for drain().
  void record_read(StreamView stream) { device_.record(rows_read_.view(), stream); }

  // Waits for all enqueued work. After a device failure, marks the sequences at work as failed and
  // recreates streams and events. Throws nothing, because the caller may work for another sequence.
  void drain();
  // As drain(), with what the open step has enqueued so far.
  void drain_step();
  // Throws DeviceError if the device could not recreate the streams after a failure, and still
  // cannot.
  void require();
  // Waits until the slot's last step has finished; drains if a failure is found.
  void free_slot(size_t index);
  // Registers `id` as a sequence that the control stream works for.
  void note_control_work(SequenceId id);
  // Begins a step in the slot. Control work since the last step began belongs to this one.
  void note_step(size_t slot, std::span<const StepSequence> sequences);
  // Handles a failure of the open step's own work.
  void fail_step(const std::string& reason);

 private:
  // Sequences at work, to which drain() attributes a failure.
  struct AtWork {
    std::vector<uint64_t> in_step;
    std::vector<uint64_t> before_it;  // control work before the step
  };
  void start();
  void restart(const std::string& failure);

  Device& device_;
  const StepSettings& settings_;
  SequenceTable& sequences_;
  std::optional<OpenStep> step_;
  const std::function<void()> forget_;
  Stream control_;
  Event tables_ready_;
  Event rows_read_;  // last read() on any stream
  std::unique_ptr<StepPipeline> pipeline_;
  std::array<DescriptorBuffer, 2> slots_;
  std::array<AtWork, 2> at_work_;       // by slot, until its next step begins
  std::vector<uint64_t> late_;          // sequences whose earlier work may still be under way
  std::vector<uint64_t> beside_steps_;  // control work since a step began
  std::optional<std::string> failure_;  // after which the streams could not be recreated
};

}  // namespace fasa
