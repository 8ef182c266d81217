// A device on which work fails when it runs, after the call that enqueued it has returned.
#pragma once

#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "offload/wrapped_device.h"

namespace fasa {

// Over a device that runs host code, and that goes before all that is allocated here does.
class LateFaultDevice final : public WrappedDevice {
 public:
  explicit LateFaultDevice(std::unique_ptr<Device> inner)
      : WrappedDevice(*inner), owned_(std::move(inner)) {}

  // Of the copies, fills, records and waits that are enqueued from now on, on any stream, the n-th
  // (1 = the next) comes behind work that fails; 0 = none does.
  void fail_late(int64_t nth) {
    countdown_ = nth;
    fired_ = false;
  }
  bool fired() const { return fired_; }
  Device& inner() { return *owned_; }  // on which nothing fails
  // Until all that was enqueued has run or failed; throws nothing.
  void let_all_run() { static_cast<void>(transfers()); }

  void record(EventView event, StreamView stream) override {
    strike(stream);
    WrappedDevice::record(event, stream);
  }
  void wait(StreamView stream, EventView event) override {
    strike(stream);
    WrappedDevice::wait(stream, event);
  }
  void copy(void* destination, const void* source, size_t bytes, CopyKind kind,
            StreamView stream) override {
    strike(stream);
    WrappedDevice::copy(destination, source, bytes, kind, stream);
  }
  void fill(void* destination, int byte, size_t bytes, StreamView stream) override {
    strike(stream);
    WrappedDevice::fill(destination, byte, bytes, stream);
  }

 private:
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
