// A device whose n-th allocation or copy fails; everything else goes to the device it wraps.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "offload/device.h"
#include "runtime/base/error.h"

namespace fasa {

class FaultyDevice final : public Device {
 public:
  explicit FaultyDevice(Device& inner) : inner_(inner) {}

  // The n-th from now (1 = the next); 0 = none. Allocations fail with BudgetError, copies and fills
  // with DeviceError, from the call itself.
  void fail_allocation(int64_t nth) { allocation_ = nth; }
  void fail_copy(int64_t nth) { copy_ = nth; }
  bool fired() const { return fired_; }

  DeviceKind kind() const override { return inner_.kind(); }
  std::string name() const override { return inner_.name(); }
  MemoryUse memory(MemorySpace space) const override { return inner_.memory(space); }
  Stream create_stream(StreamPriority priority, std::string_view name) override {
    return inner_.create_stream(priority, name);
  }
  Event create_event() override { return inner_.create_event(); }
  void record(EventView event, StreamView stream) override { inner_.record(event, stream); }
  void wait(StreamView stream, EventView event) override { inner_.wait(stream, event); }
  void synchronize(StreamView stream) override { inner_.synchronize(stream); }
  void synchronize(EventView event) override { inner_.synchronize(event); }
  bool done(EventView event) override { return inner_.done(event); }
  void copy(void* destination, const void* source, size_t bytes, CopyKind kind,
            StreamView stream) override {
    if (count(copy_)) throw DeviceError("injected: copy");
    inner_.copy(destination, source, bytes, kind, stream);
  }
  void fill(void* destination, int byte, size_t bytes, StreamView stream) override {
    if (count(copy_)) throw DeviceError("injected: fill");
    inner_.fill(destination, byte, bytes, stream);
  }
  const KernelTable& kernels() const override { return inner_.kernels(); }
  void launch(StreamView stream, const char* name, std::function<KernelWork()> work) override {
    inner_.launch(stream, name, std::move(work));
  }
  double seconds_at(EventView event) override { return inner_.seconds_at(event); }
  bool virtual_clock() const override { return inner_.virtual_clock(); }
  TransferTotals transfers() override { return inner_.transfers(); }

 private:
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
    Buffer buffer = inner_.allocate(space, bytes, purpose);
    std::byte* data = buffer.data();
    buffers_.emplace(data, std::move(buffer));
    return data;
  }
  void do_free(MemorySpace, std::byte* data, size_t) noexcept override { buffers_.erase(data); }
  // Streams and events are the inner device's own.
  void destroy_stream(StreamView) noexcept override {}
  void destroy_event(EventView) noexcept override {}

  Device& inner_;
  int64_t allocation_ = 0;
  int64_t copy_ = 0;
  bool fired_ = false;
  std::map<std::byte*, Buffer> buffers_;
};

}  // namespace fasa
