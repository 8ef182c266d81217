// A device whose work fails when it runs, after the call that enqueued it has returned.
#pragma once

#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "offload/wrapped_device.h"

namespace fasa {

// Wraps a device that runs host code. The wrapped device is destroyed before memory allocated here
// is freed.
class LateFaultDevice final : public WrappedDevice {
 public:
  explicit LateFaultDevice(std::unique_ptr<Device> inner)
      : WrappedDevice(*inner), owned_(std::move(inner)) {}

  // Counts copies, fills, records and waits enqueued from now on, on any stream: the n-th (1 = the
  // next) is enqueued behind work that fails; 0 = none.
  void fail_late(int64_t nth) {
    countdown_ = nth;
    fired_ = false;
  }
  bool fired() const { return fired_; }
  Device& inner() { return *owned_; }  // on which nothing fails
  // Waits until all enqueued work has run or failed; throws nothing.
  void let_all_run() { static_cast<void>(transfers()); }

  void record(EventView event, StreamView stream) override {
    strike(stream);
    WrappedDevice::record(event, stream);
  }

 private:
  void do_wait(StreamView stream, EventView event, OperationTag tag) override {
    strike(stream);
    WrappedDevice::do_wait(stream, event, tag);
  }
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override {
    for (const CopyRange& range : ranges) {
      strike(stream);
      WrappedDevice::do_copy({&range, 1}, kind, stream, tag);
    }
  }
  void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
               OperationTag tag) override {
    strike(stream);
    WrappedDevice::do_fill(destination, byte, bytes, stream, tag);
  }

  void strike(StreamView stream) {
    if (countdown_ == 0 || --countdown_ > 0) return;
    fired_ = true;
    inner_.launch(stream, "injected",
                  []() -> KernelWork { throw std::runtime_error("injected: it failed late"); });
  }

  std::unique_ptr<Device> owned_;
  int64_t countdown_ = 0;
  bool fired_ = false;
};

}  // namespace fasa
