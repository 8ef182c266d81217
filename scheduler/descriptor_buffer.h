// The descriptors of a step, on the host and on the device. Two slots take turns, so that a step
// can be prepared while the one before it still runs.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"

namespace fasa {

class DescriptorBuffer {
 public:
  // `window_rows`: with descriptors of their pages.
  explicit DescriptorBuffer(Device& device, bool window_rows = false)
      : device_(device),
        kinds_(window_rows ? kAllKinds : kKinds),
        done_(device.create_event()),
        written_back_(device.create_event()) {}

  // Waits until the step that used this slot last has passed.
  void wait_until_free() { device_.synchronize(done_.view()); }
  // Throws DeviceError where work that this slot's last step enqueued has failed by now; waits for
  // nothing. True where all of it has passed.
  bool poll() {
    static_cast<void>(device_.done(done_.view()));
    bool all = device_.done(written_back_.view());
    for (const Event& passed : passed_) all &= device_.done(passed.view());
    return all;
  }
  // Until all of it has passed.
  void wait_until_passed() {
    device_.synchronize(done_.view());
    device_.synchronize(written_back_.view());
    for (const Event& passed : passed_) device_.synchronize(passed.view());
  }
  // Of streams beside compute that the step's work went to: not all of it is waited for there, rows
  // that were fetched ahead for nothing, say, and what failed of it has to be this step's.
  void mark_streams(std::span<const StreamView> streams) {
    while (passed_.size() < streams.size()) passed_.push_back(device_.create_event());
    for (size_t i = 0; i < streams.size(); ++i) device_.record(passed_[i].view(), streams[i]);
  }
  // Streams have failed: their events would say so for ever. Streams are idle.
  void renew_events() {
    done_ = device_.create_event();
    written_back_ = device_.create_event();
    passed_.clear();
  }
  void mark_done(StreamView compute) { device_.record(done_.view(), compute); }
  EventView done() const { return done_.view(); }
  // For the write-back's stream to record: it reads the descriptors too, and may be behind compute.
  EventView written_back() const { return written_back_.view(); }
  // Room for `count` descriptors of each kind. Throws BudgetError, and has none then.
  void ensure(size_t count) {
    if (count > capacity_) resize(count);
  }
  void resize(size_t count) {
    memory_ = Buffer();
    capacity_ = 0;
    if (count == 0) return;
    memory_ = device_.allocate(MemorySpace::kDevice, kinds_ * count * sizeof(SequenceDesc),
                               "step descriptors");
    capacity_ = count;
  }
  void upload(StreamView control) {
    constexpr OperationTag kTag = tag_of(-1, Cause::kControl);
    device_.wait(control, written_back_.view(), kTag);
    for (size_t kind = 0; kind < kinds_; ++kind) {
      const std::vector<SequenceDesc>& descs = host_[kind];
      if (descs.empty()) continue;
      device_.copy(memory_.as<SequenceDesc>() + kind * capacity_, descs.data(),
                   descs.size() * sizeof(SequenceDesc), CopyKind::kHostToDevice, control, kTag);
    }
  }

  // The step's sequences, those to restore first, and the step's with their pages of window rows.
  enum Kind : size_t { kStep, kRestore, kWindowRows, kAllKinds };
  static constexpr size_t kKinds = kWindowRows;  // without window rows
  std::vector<SequenceDesc>& host(Kind kind) { return host_[kind]; }
  const SequenceDesc* device(Kind kind) const {
    return memory_.as<SequenceDesc>() + kind * capacity_;
  }
  // Where the descriptors have the step's number, once they are uploaded.
  const int32_t* device_step_number() const {
    return reinterpret_cast<const int32_t*>(memory_.data() + offsetof(SequenceDesc, step_number));
  }
  size_t capacity() const { return capacity_; }
  uint64_t bytes() const { return memory_.bytes(); }

 private:
  Device& device_;
  const size_t kinds_;
  Buffer memory_;
  size_t capacity_ = 0;
  std::array<std::vector<SequenceDesc>, kAllKinds> host_;
  Event done_;
  Event written_back_;
  std::vector<Event> passed_;
};

}  // namespace fasa
