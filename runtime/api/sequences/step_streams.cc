#include "runtime/api/sequences/step_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {

StepStreams::StepStreams(Device& device, const StepSettings& settings, const Geometry& geometry,
                         const std::vector<int16_t>& slice_dims, SequenceTable& sequences,
                         std::function<void()> forget)
    : device_(device),
      sequences_(sequences),
      engine_(device, settings, geometry, slice_dims, *this),
      forget_(std::move(forget)),
      rows_read_(device.create_event()),
      slots_{DescriptorBuffer(device, *this, settings.has_window_rows()),
             DescriptorBuffer(device, *this, settings.has_window_rows())} {}

void StepStreams::note_step(std::span<const StepPart> sequences) {
  const size_t slot = next_slot();
  ++steps_;
  work_[slot].begun = ++last_;
  for (const StepPart& part : sequences) {
    part.sequence->takes_part(slot, {last_});
  }
}

void StepStreams::fail_step(const std::string& reason) {
  const size_t slot = step_->slot_index;
  sequences_.mark_failed(
      [&](const SequenceWork& work) { return work.steps[slot].number == work_[slot].begun; },
      reason);
  step_->failure = reason;
}

// Streams of different callers are not ordered, and one event stands for the reads of one of them.
void StepStreams::record_read(StreamView stream) {
  if (reader_.native != stream.native) await_reads();
  device_.record(rows_read_.view(), stream);
  reader_ = stream;
}

// On the host, because a failed read must fail nothing else; rare beside steps.
void StepStreams::await_reads() {
  if (std::exchange(reader_, {}).native == nullptr) return;
  try {
    device_.synchronize(rows_read_.view());
  } catch (const DeviceError&) {
    // The caller learns it from its stream. A read changes nothing.
  }
}

// All work but the newest step's comes before the events of the older slot: compute was waited for
// when the slots were taken again, and the other streams work in the order of steps.
void StepStreams::order(Fence fence) {
  if (fence.number <= passed_) return;
  const size_t older = older_slot();
  slots_[older].precede(engine_.control());
  if (fence.number >= work_[1 - older].begun) slots_[1 - older].precede(engine_.control());
  await_reads();
}

void StepStreams::wait(Fence fence) {
  if (fence.number <= passed_ || failure_) return;
  if (step_) return wait_for_step();
  const size_t older = older_slot();
  const uint64_t newest = work_[1 - older].begun;
  try {
    slots_[older].wait_until_passed();
    if (fence.number >= newest) slots_[1 - older].wait_until_passed();
    if (fence.number > newest) device_.synchronize(engine_.control());
    await_reads();
  } catch (const DeviceError&) {
    return drain();
  }
  note_passed(older);
  if (fence.number < newest) {
    passed_ = std::max(passed_, newest - 1);
    return;
  }
  note_passed(1 - older);
  passed_ = fence.number;
  if (fence.number == newest) return;
  control_passed_ = fence.number;
  last_ = std::max(last_, fence.number);  // later control work gets another number
}

void StepStreams::wait_for_step() {
  if (step_ && step_->enqueued && !step_->failure) step_->slot->mark_done(step_->compute);
  drain();
}

void StepStreams::await_aborted() {
  try {
    if (!step_->failure && step_->enqueued) step_->slot->mark_done(step_->compute);
  } catch (const DeviceError& error) {
    fail_step(error.what());
  } catch (const std::bad_alloc&) {
    device_.synchronize(step_->compute);
  }
  wait_for_step();
}

void StepStreams::require_no_step(const char* call) const {
  if (!step_) return;
  throw UsageError(fmt::format("{} inside a step; call end_step or abort_step first", call));
}

void StepStreams::drain() {
  if (failure_) return;  // its work has failed, and the failure was reported
  std::optional<std::string> failure;
  const auto passes = [&](const auto& wait) {
    try {
      wait();
      return true;
    } catch (const DeviceError& error) {
      if (!failure) failure = error.what();
      return false;
    }
  };
  const auto slot_passes = [&](size_t i) { return passes([&] { slots_[i].wait_until_passed(); }); };
  const std::array<bool, 2> slots = {slot_passes(0), slot_passes(1)};
  const bool control = passes([&] { device_.synchronize(engine_.control()); });
  const bool transfers = passes([&] { engine_.executor().synchronize(); });
  await_reads();
  const std::array<SlotWork, 2> before = work_;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] && (!step_ || step_->slot_index != i)) note_passed(i);
  }
  const auto lost = [&](const SequenceWork& work) {
    if (!control && work.control.number > control_passed_) return true;
    // The events of neither step can tell which sequence's work failed.
    const bool any = (!control || !transfers) && slots[0] && slots[1] && !step_;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (any && work.steps[i].number > before[i].passed) return true;
      const bool late = work.steps[i].number < work_[i].begun;
      if (work.steps[i].number > work_[i].passed && (!slots[i] || (!transfers && late)))
        return true;
    }
    return false;
  };
  if (failure) sequences_.mark_failed(lost, *failure);
  if (failure && step_) fail_step(*failure);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!step_ || step_->slot_index != i) work_[i].passed = work_[i].begun;
  }
  if (step_) {
    passed_ = std::max(passed_, work_[step_->slot_index].begun - 1);
  } else {
    passed_ = control_passed_ = ++last_;  // later control work gets another number
  }
  if (failure) restart(*failure);
}

void StepStreams::restart(const std::string& failure) {
  failure_ = failure;
  try {
    forget_();
    engine_.restart();
    rows_read_ = device_.create_event();
    reader_ = {};
    for (DescriptorBuffer& slot : slots_) slot.renew_events();
    failure_.reset();
  } catch (const std::exception&) {
    // The next call that needs the streams retries, and throws the error.
  }
}

void StepStreams::require() {
  if (!failure_) return;
  restart(std::string(*failure_));
  if (failure_) throw DeviceError(*failure_);
}

void StepStreams::require(std::span<const StepPart> sequences) {
  for (const StepPart& part : sequences) part.sequence->require_usable();
  require();
}

// Streams other than compute work in the order of steps, and the compute of earlier steps in the
// other slot was waited for.
void StepStreams::note_passed(size_t slot) {
  const uint64_t step = work_[slot].begun;
  SlotWork& other = work_[1 - slot];
  work_[slot].passed = step;
  other.passed = std::max(other.passed, std::max<uint64_t>(std::min(step, other.begun), 1) - 1);
  control_passed_ = std::max(control_passed_, step);
}

// The check of both slots costs four queries per step. Without it, new work would be enqueued
// behind work that has failed, and be lost with it.
size_t StepStreams::free_slot() {
  const size_t slot = next_slot();
  try {
    slots_[slot].wait_until_free();
    for (const size_t i : {slot, 1 - slot}) {
      if (slots_[i].poll()) note_passed(i);
    }
  } catch (const DeviceError&) {
    drain();
  }
  return slot;
}

}  // namespace fasa
