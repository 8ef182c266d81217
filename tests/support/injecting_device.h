// A device whose calls fail where a fault injector says so, and that keeps its own records of
// allocated memory. Operations of the stepped device fail when they run, through its on_run().
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "offload/wrapped_device.h"
#include "runtime/base/error.h"
#include "tests/support/fault_injector.h"

namespace fasa {

class InjectingDevice final : public WrappedDevice {
 public:
  // While a test's own inner device works, nothing else may fail.
  enum class Inner : uint8_t { kProducts, kTests };
  InjectingDevice(Device& inner, FaultInjector& injector, Inner whose = Inner::kTests)
      : WrappedDevice(inner), injector_(injector), whose_(whose) {}

  // Bytes allocated and not freed, by this device's own records.
  uint64_t held_bytes(MemorySpace space) const { return held_[static_cast<size_t>(space)]; }
  // Allocations that the device refused at its limits, and how many of them would have fitted.
  int64_t refusals() const { return refusals_; }
  int64_t wrong_refusals() const { return wrong_refusals_; }

  Stream create_stream(StreamPriority priority, std::string_view name) override {
    require(FaultPoint::kStream, "create_stream");
    const Quiet quiet(*this);
    return WrappedDevice::create_stream(priority, name);
  }
  Event create_event() override {
    require(FaultPoint::kEvent, "create_event");
    const Quiet quiet(*this);
    return WrappedDevice::create_event();
  }
  void record(EventView event, StreamView stream) override {
    require(FaultPoint::kEvent, "record");
    const Quiet quiet(*this);
    WrappedDevice::record(event, stream);
  }

 private:
  // While it lives, nothing fails in a test's device. Work that runs on it consults the injector
  // itself.
  class Quiet {
   public:
    explicit Quiet(InjectingDevice& device)
        : pause_(device.whose_ == Inner::kTests ? &device.injector_ : nullptr,
                 FaultPoint::kOperation) {}

   private:
    FaultInjector::Pause pause_;
  };

  static void fail(const char* what) {
    throw DeviceError(std::string(what) + " failed on this device: injected");
  }
  void require(FaultPoint point, const char* what) {
    if (injector_.fails(point)) fail(what);
  }
  void do_wait(StreamView stream, EventView event, OperationTag tag) override {
    require(FaultPoint::kEvent, "wait");
    const Quiet quiet(*this);
    WrappedDevice::do_wait(stream, event, tag);
  }
  void do_synchronize(StreamView stream) override {
    const Quiet quiet(*this);
    WrappedDevice::do_synchronize(stream);
  }
  bool passed(EventView event, Patience patience) override {
    if (patience == Patience::kNone) return WrappedDevice::passed(event, patience);
    const Quiet quiet(*this);
    return WrappedDevice::passed(event, patience);
  }
  // The ranges before the failing one are copied.
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override {
    size_t done = 0;
    while (done < ranges.size() && !injector_.fails(FaultPoint::kCopy)) ++done;
    if (done > 0) {
      const Quiet quiet(*this);
      WrappedDevice::do_copy(ranges.first(done), kind, stream, tag);
    }
    if (done < ranges.size()) fail("copy");
  }
  void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
               OperationTag tag) override {
    require(FaultPoint::kFill, "fill");
    const Quiet quiet(*this);
    WrappedDevice::do_fill(destination, byte, bytes, stream, tag);
  }
  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override {
    const MemoryUse use = inner_.memory(space);
    if (injector_.fails(FaultPoint::kAllocation)) {
      throw BudgetError(space == MemorySpace::kDevice ? "device_memory" : "host_memory", bytes,
                        use.used_bytes, use.used_bytes, std::string(purpose));
    }
    const Quiet quiet(*this);
    uint64_t& held = held_[static_cast<size_t>(space)];
    try {
      std::byte* data = WrappedDevice::do_allocate(space, bytes, purpose);
      held += bytes;
      return data;
    } catch (const BudgetError&) {
      ++refusals_;
      if (bytes <= use.limit_bytes - std::min(use.limit_bytes, held)) ++wrong_refusals_;
      throw;
    }
  }
  void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept override {
    held_[static_cast<size_t>(space)] -= bytes;
    WrappedDevice::do_free(space, data, bytes);
  }

  FaultInjector& injector_;
  const Inner whose_;
  uint64_t held_[2] = {};
  int64_t refusals_ = 0;
  int64_t wrong_refusals_ = 0;
};

}  // namespace fasa
