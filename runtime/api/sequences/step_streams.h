// The streams of a runtime and what is under way in them: steps, uploads, rows that are read back;
// and whose a failure is that shows late.
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
  // All outlive it. `forget` runs before streams are made anew: nothing of theirs may stay.
  StepStreams(Device& device, const StepSettings& settings, SequenceTable& sequences,
              std::function<void()> forget);

  StreamView control() const { return control_.view(); }  // uploads and repairs before a step
  StepPipeline& pipeline() { return *pipeline_; }
  const StepPipeline& pipeline() const { return *pipeline_; }
  std::array<DescriptorBuffer, 2>& slots() { return slots_; }
  const std::array<DescriptorBuffer, 2>& slots() const { return slots_; }
  std::optional<OpenStep>& step() { return step_; }  // none between steps
  // Stands for what the control stream was given so far, until it is recorded again.
  EventView record_tables();
  // The work of a read() on `stream`, for drain().
  void record_read(StreamView stream) { device_.record(rows_read_.view(), stream); }

  // Waits for everything that was enqueued. A failure on the device is remembered by the sequences
  // that were at work there, and streams and events start anew. Nothing is thrown, for the caller
  // may be working for another sequence.
  void drain();
  // As drain(), with what the open step has enqueued so far.
  void drain_step();
  // Throws DeviceError where the device refused to start them after a failure, and still does.
  void require();
  // The slot's last step has passed, and no failure is known of that was not drained.
  void free_slot(size_t index);
  // The control stream works for it.
  void note_control_work(SequenceId id);
  // A step begins in the slot: what the control stream did since the last one began belongs to it.
  void note_step(size_t slot, std::span<const StepSequence> sequences);
  // The open step's own work failed.
  void fail_step(const std::string& reason);

 private:
  // Sequences at work, for drain() to know whose a failure is.
  struct AtWork {
    std::vector<uint64_t> in_step;
    std::vector<uint64_t> before_it;  // that the control stream worked for before the step
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
  Event rows_read_;  // the last read() has passed
  std::unique_ptr<StepPipeline> pipeline_;
  std::array<DescriptorBuffer, 2> slots_;
  std::array<AtWork, 2> at_work_;       // by slot, until its next step begins
  std::vector<uint64_t> late_;          // work of theirs may still be under way then
  std::vector<uint64_t> beside_steps_;  // that the control stream worked for since a step began
  std::optional<std::string> failure_;  // after which they could not be started again
};

}  // namespace fasa
