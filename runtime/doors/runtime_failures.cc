// What a device failure that shows late is taken for: it stays with the sequences that were at work.
#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/doors/runtime_impl.h"

namespace fasa {
namespace {

void add_once(std::vector<uint64_t>& ids, uint64_t id) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

}  // namespace

void Runtime::Impl::note_control_work(SequenceId id) { add_once(beside_steps_, index_of(id)); }

// Sequences that were freed meanwhile need not know. The first error counts.
void Runtime::Impl::mark_failed(std::span<const uint64_t> ids, const std::string& reason) {
  for (const uint64_t id : ids) {
    const auto found = sequences_.find(id);
    if (found != sequences_.end() && !found->second->failure) found->second->failure = reason;
  }
}

void Runtime::Impl::drain() {
  if (streams_failure_) return;  // what there was has failed, and was told
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
    if (!passed) mark_failed(at_work_[i].in_step, *failure);
    // The step waited for the control stream: what that did before has passed as well.
    if (passed) at_work_[i].before_it.clear();
    slot_failed |= !passed;
  }
  const bool control = passes([&] { device_.synchronize(control_.view()); });
  const bool pipeline = passes([&] { pipeline_->synchronize(); });
  static_cast<void>(passes([&] { device_.synchronize(rows_read_.view()); }));  // changes nothing
  if (!control) {
    mark_failed(beside_steps_, *failure);
    for (const AtWork& work : at_work_) mark_failed(work.before_it, *failure);
  }
  if (!pipeline) mark_failed(late_, *failure);
  // Whose work it was the events of neither step can say.
  if ((!control || !pipeline) && !slot_failed && !step_) {
    for (const AtWork& work : at_work_) mark_failed(work.in_step, *failure);
  }
  if (failure && step_) {
    mark_failed(at_work_[step_->slot_index].in_step, *failure);
    step_->failure = failure;
  }
  for (size_t i = 0; i < at_work_.size(); ++i) {
    if (!step_ || step_->slot_index != i) at_work_[i] = {};
  }
  late_.clear();
  beside_steps_.clear();
  if (failure) restart_streams(*failure);
}

void Runtime::Impl::restart_streams(const std::string& failure) {
  streams_failure_ = failure;
  try {
    start_streams();
    tables_ready_ = device_.create_event();
    rows_read_ = device_.create_event();
    for (DescriptorBuffer& slot : slots_) slot.renew_events();
    for (StepProbe& probe : probes_) probe.renew_events();
    streams_failure_.reset();
  } catch (const std::exception&) {
    // Who needs them tries again, and is told.
  }
}

void Runtime::Impl::require_streams() {
  if (!streams_failure_) return;
  restart_streams(std::string(*streams_failure_));
  if (streams_failure_) throw DeviceError(*streams_failure_);
}

// Looking at both slots costs four queries a step. Without, work would be enqueued behind what has
// failed already, and be lost with it.
void Runtime::Impl::free_slot(size_t index) {
  try {
    slots_[index].wait_until_free();
    const bool passed = slots_[index].look();
    slots_[1 - index].look();
    // On each stream work passes in the order of its steps.
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
