// A device whose n-th allocation or copy fails; all other calls go to the wrapped device.
#pragma once

#include <span>
#include <string>

#include "offload/wrapped_device.h"
#include "runtime/base/error.h"

namespace fasa {

class FaultyDevice final : public WrappedDevice {
 public:
  explicit FaultyDevice(Device& inner) : WrappedDevice(inner) {}

  // The n-th from now (1 = the next); 0 = none. Allocations fail with BudgetError, copies and fills
  // with DeviceError, thrown by the call itself.
  void fail_allocation(int64_t nth) { allocation_ = nth; }
  void fail_copy(int64_t nth) { copy_ = nth; }
  bool fired() const { return fired_; }

 private:
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override {
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (count(copy_)) throw DeviceError("injected: copy");
    }
    inner_.copy_all(ranges, kind, stream, tag);
  }
  void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
               OperationTag tag) override {
    if (count(copy_)) throw DeviceError("injected: fill");
    inner_.fill(destination, byte, bytes, stream, tag);
  }
  // True when the countdown reaches its end with this call.
  bool count(int64_t& countdown) {
    if (countdown == 0 || --countdown > 0) return false;
    fired_ = true;
    return true;
  }
  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override {
    if (count(allocation_)) {
      const MemoryUse use = inner_.memory(space);
      throw BudgetError(space == MemorySpace::kDevice ? "device_memory" : "host_memory", bytes,
                        use.used_bytes, use.used_bytes, std::string(purpose));
    }
    return WrappedDevice::do_allocate(space, bytes, purpose);
  }

  int64_t allocation_ = 0;
  int64_t copy_ = 0;
  bool fired_ = false;
};

}  // namespace fasa
