#include "runtime/api/sequences/step_streams.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {
namespace {

void add_once(std::vector<uint64_t>& ids, uint64_t id) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

}  // namespace

StepStreams::StepStreams(Device& device, const StepSettings& settings, SequenceTable& sequences,
                         std::function<void()> forget)
    : device_(device),
      settings_(settings),
      sequences_(sequences),
      forget_(std::move(forget)),
      tables_ready_(device.create_event()),
      rows_read_(device.create_event()),
      slots_{DescriptorBuffer(device, settings.has_window_rows()),
             DescriptorBuffer(device, settings.has_window_rows())} {
  start();
}

void StepStreams::start() {
  control_ = device_.create_stream(StreamPriority::kHigh, "control");
  pipeline_ = std::make_unique<StepPipeline>(device_, settings_);
}

EventView StepStreams::record_tables() {
  device_.record(tables_ready_.view(), control_.view());
  return tables_ready_.view();
}

void StepStreams::note_control_work(SequenceId id) { add_once(beside_steps_, index_of(id)); }

void StepStreams::note_step(size_t slot, std::span<const StepSequence> sequences) {
  AtWork& work = at_work_[slot];
  for (const StepSequence& part : sequences) work.in_step.push_back(index_of(part.sequence));
  work.before_it = std::exchange(beside_steps_, {});
}

void StepStreams::fail_step(const std::string& reason) {
  sequences_.mark_failed(at_work_[step_->slot_index].in_step, reason);
  step_->failure = reason;
}

void StepStreams::drain_step() {
  if (step_ && step_->appended > 0) step_->slot->mark_done(step_->compute);
  drain();
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
  bool slot_failed = false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const bool passed = passes([&] { slots_[i].wait_until_passed(); });
    if (!passed) sequences_.mark_failed(at_work_[i].in_step, *failure);
    // The step waited for the control stream, so the control work before it has finished too.
    if (passed) at_work_[i].before_it.clear();
    slot_failed |= !passed;
  }
  const bool control = passes([&] { device_.synchronize(control_.view()); });
  const bool pipeline = passes([&] { pipeline_->synchronize(); });
  static_cast<void>(passes([&] { device_.synchronize(rows_read_.view()); }));  // changes nothing
  if (!control) {
    sequences_.mark_failed(beside_steps_, *failure);
    for (const AtWork& work : at_work_) sequences_.mark_failed(work.before_it, *failure);
  }
  if (!pipeline) sequences_.mark_failed(late_, *failure);
  // The events of neither step can tell which sequence's work failed.
  if ((!control || !pipeline) && !slot_failed && !step_) {
    for (const AtWork& work : at_work_) sequences_.mark_failed(work.in_step, *failure);
  }
  if (failure && step_) fail_step(*failure);
  for (size_t i = 0; i < at_work_.size(); ++i) {
    if (!step_ || step_->slot_index != i) at_work_[i] = {};
  }
  late_.clear();
  beside_steps_.clear();
  if (failure) restart(*failure);
}

void StepStreams::restart(const std::string& failure) {
  failure_ = failure;
  try {
    forget_();
    start();
    tables_ready_ = device_.create_event();
    rows_read_ = device_.create_event();
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

// The check of both slots costs four queries per step. Without it, new work would be enqueued
// behind work that has failed, and be lost with it.
void StepStreams::free_slot(size_t index) {
  try {
    slots_[index].wait_until_free();
    const bool passed = slots_[index].poll();
    slots_[1 - index].poll();
    // Work on each stream finishes in the order of its steps.
    if (passed) late_.clear();
    if (!passed) {
      for (const uint64_t id : at_work_[index].in_step) add_once(late_, id);
    }
    at_work_[index] = {};
  } catch (const DeviceError&) {
    drain();
  }
}

}  // namespace fasa
