// The descriptors of a step, on the host and on the device. Double-buffered, so that a step can be
// prepared while the previous one runs.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/step_buffer.h"

namespace fasa {

class DescriptorBuffer {
 public:
  // `window_rows`: adds descriptors for pages of window rows. `fences` outlives the buffer.
  explicit DescriptorBuffer(Device& device, Fences& fences, bool window_rows = false)
      : device_(device),
        kinds_(window_rows ? kRounds : kKinds),
        memory_(device, fences, "step descriptors"),
        round_memory_(device, fences, "descriptors of tokens decoded together"),
        done_(device.create_event()),
        written_back_(device.create_event()) {}

  // Waits until the last step that used this slot is complete.
  void wait_until_free() { device_.synchronize(done_.view()); }
  // True if all work of this slot's last step is complete. Does not wait. Throws DeviceError if
  // some of it has failed.
  bool poll() {
    bool all = device_.done(done_.view());
    all &= device_.done(written_back_.view());
    for (const Event& passed : passed_) all &= device_.done(passed.view());
    return all;
  }
  // Waits until all of it is complete.
  void wait_until_passed() {
    device_.synchronize(done_.view());
    device_.synchronize(written_back_.view());
    for (const Event& passed : passed_) device_.synchronize(passed.view());
  }
  // Work enqueued on `stream` after this comes after all of it.
  void precede(StreamView stream) const {
    constexpr OperationTag kTag = tag_of(-1, Cause::kControl);
    device_.wait(stream, done_.view(), kTag);
    device_.wait(stream, written_back_.view(), kTag);
    for (const Event& passed : passed_) device_.wait(stream, passed.view(), kTag);
  }
  // Also tracks streams beside compute: unused prefetches may still run when compute is complete,
  // and their failures belong to this step.
  void mark_streams(std::span<const StreamView> streams) {
    while (passed_.size() < streams.size()) passed_.push_back(device_.create_event());
    for (size_t i = 0; i < streams.size(); ++i) device_.record(passed_[i].view(), streams[i]);
  }
  // Replaces the events of failed streams, which would report the failure again. Streams must be
  // idle.
  void renew_events() {
    done_ = device_.create_event();
    written_back_ = device_.create_event();
    passed_.clear();
  }
  void mark_done(StreamView compute) { device_.record(done_.view(), compute); }
  EventView done() const { return done_.view(); }
  // Recorded by the write-back stream: it also reads the descriptors and may lag behind compute.
  EventView written_back() const { return written_back_.view(); }
  // Descriptors of each kind, those of rounds aside.
  struct Capacity {
    size_t count = 0;
    size_t of_rounds = 0;
    bool operator==(const Capacity&) const = default;
  };
  // Allocates them, after waiting for the readers of fewer. Throws BudgetError; then the buffer has
  // none.
  void ensure(const Capacity& least) {
    if (least.count > capacity_.count) {
      capacity_.count = 0;
      memory_.resize(kinds_ * least.count * sizeof(SequenceDesc));
      capacity_.count = least.count;
    }
    if (least.of_rounds > capacity_.of_rounds) {
      capacity_.of_rounds = 0;
      round_memory_.resize((kinds_ - kKinds + 1) * least.of_rounds * sizeof(SequenceDesc));
      capacity_.of_rounds = least.of_rounds;
    }
  }
  void ensure(size_t count) { ensure(Capacity{count}); }
  void drop() {
    capacity_ = {};
    memory_.resize(0);
    round_memory_.resize(0);
  }
  void upload(StreamView control) {
    constexpr OperationTag kTag = tag_of(-1, Cause::kControl);
    device_.wait(control, written_back_.view(), kTag);
    for (size_t kind = 0; kind < kAllKinds; ++kind) {
      const std::vector<SequenceDesc>& descs = host_[kind];
      if (descs.empty()) continue;
      device_.copy(at(static_cast<Kind>(kind)), descs.data(), descs.size() * sizeof(SequenceDesc),
                   CopyKind::kHostToDevice, control, kTag);
    }
  }

  // Descriptors of the step's sequences, of those to restore or to code first, and of the window
  // rows' pages; of the rounds of attention (DecodeRounds), and of the window rows' pages for them.
  enum Kind : size_t {
    kStep,
    kRestore,
    kCode,
    kWindowRows,
    kRounds,
    kRoundsInWindowRows,
    kAllKinds
  };
  static constexpr size_t kKinds = kWindowRows;  // without window rows and rounds
  std::vector<SequenceDesc>& host(Kind kind) { return host_[kind]; }
  const std::vector<SequenceDesc>& host(Kind kind) const { return host_[kind]; }
  const SequenceDesc* device(Kind kind) const { return at(kind); }
  // Device address of the step number of a descriptor on the device, valid after the upload.
  static const int32_t* step_number_of(const SequenceDesc* desc) {
    return reinterpret_cast<const int32_t*>(reinterpret_cast<const std::byte*>(desc) +
                                            offsetof(SequenceDesc, step_number));
  }
  const Capacity& capacity() const { return capacity_; }
  uint64_t bytes() const { return memory_.bytes() + round_memory_.bytes(); }

 private:
  SequenceDesc* at(Kind kind) const {
    const bool of_rounds = kind >= kRounds;
    const StepBuffer& memory = of_rounds ? round_memory_ : memory_;
    return reinterpret_cast<SequenceDesc*>(memory.data()) +
           (of_rounds ? (kind - kRounds) * capacity_.of_rounds : kind * capacity_.count);
  }

  Device& device_;
  const size_t kinds_;
  StepBuffer memory_;
  StepBuffer round_memory_;
  Capacity capacity_;
  std::array<std::vector<SequenceDesc>, kAllKinds> host_;
  Event done_;
  Event written_back_;
  std::vector<Event> passed_;
};

}  // namespace fasa
