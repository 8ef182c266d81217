// The work under way on a runtime's streams: steps, uploads, rows read back. Steps are numbered,
// which makes fences. A failure takes the sequences whose contents depend on the failed work, even
// if it shows late; then the streams are made anew.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "offload/device.h"
#include "offload/fence.h"
#include "runtime/api/sequences/open_step.h"
#include "runtime/api/sequences/sequence_table.h"
#include "runtime/api/step_engine.h"

namespace fasa {

class StepStreams final : public Fences {
 public:
  // All arguments must outlive its use. `forget` runs before streams are recreated, and must drop
  // everything that refers to the old ones. See StepEngine.
  StepStreams(Device& device, const StepSettings& settings, const Geometry& geometry,
              const std::vector<int16_t>& slice_dims, SequenceTable& sequences,
              std::function<void()> forget);

  StepEngine& engine() { return engine_; }
  SequenceTable& sequences() { return sequences_; }
  std::array<DescriptorBuffer, 2>& slots() { return slots_; }
  const std::array<DescriptorBuffer, 2>& slots() const { return slots_; }
  std::optional<OpenStep>& step() { return step_; }  // none between steps
  // Registers the work of a read() on `stream`.
  void record_read(StreamView stream);

  // Control work enqueued after this comes after that work. Enqueues only, and never asks the
  // device what has passed: virtual times would depend on real ones.
  void order(Fence fence) override;
  // Throws nothing, because the caller may work for another sequence. After a device failure, marks
  // the sequences whose contents depend on the failed work, and recreates streams and events.
  void wait(Fence fence) override;
  Fence latest() const override { return {last_ + 1}; }
  // Waits for all work that the sequence's memory takes part in.
  void wait_for(const KvSequence& sequence) { wait(sequence.work().last()); }
  // Waits for all work, with what the open step has enqueued so far.
  void wait_for_step();
  // Waits until the work of the open step, which is aborted, has finished or failed.
  void await_aborted();
  // Waits for all work between steps. Throws what require() does.
  void settle() {
    wait(latest());
    require();
  }
  void require_no_step(const char* call) const;  // throws UsageError
  // Throws DeviceError if the device could not recreate the streams after a failure, and still
  // cannot.
  void require();
  // The same for these sequences too: work that was waited for may have failed.
  void require(std::span<const StepPart> sequences);
  // Waits until the next step's slot is free; looks for failures. Returns the slot.
  size_t free_slot();
  // The control stream; behind earlier steps if they may write what `sequence` remembers.
  const Stream& for_memories(const KvSequence& sequence) {
    if (!sequence.memories().empty()) order(latest());
    return engine_.control_stream();
  }
  // Registers a sequence that the control stream works for.
  void note_control_work(KvSequence& sequence) { sequence.takes_part(latest()); }
  // Begins a step in the slot that free_slot() gave. Control work since the last step began belongs
  // to this one.
  void note_step(std::span<const StepPart> sequences);
  // Handles a failure of the open step's own work.
  void fail_step(const std::string& reason);

 private:
  // Numbers of the last step begun in a slot, and of the last one known to have passed.
  struct SlotWork {
    uint64_t begun = 0;
    uint64_t passed = 0;
  };
  size_t next_slot() const { return steps_ % slots_.size(); }
  size_t older_slot() const { return work_[0].begun < work_[1].begun ? 0 : 1; }
  void note_passed(size_t slot);
  void await_reads();
  void drain();
  void restart(const std::string& failure);

  Device& device_;
  SequenceTable& sequences_;
  StepEngine engine_;
  std::optional<OpenStep> step_;
  const std::function<void()> forget_;
  Event rows_read_;
  StreamView reader_;  // of reads that may be under way; null: there is none
  std::array<DescriptorBuffer, 2> slots_;
  std::array<SlotWork, 2> work_;
  uint64_t steps_ = 0;                  // begun
  uint64_t last_ = 0;                   // number of the last step, or of a wait after it
  uint64_t passed_ = 0;                 // greatest number known to have passed, by waits alone
  uint64_t control_passed_ = 0;         // control work up to here has passed
  std::optional<std::string> failure_;  // after which the streams could not be recreated
};

}  // namespace fasa
