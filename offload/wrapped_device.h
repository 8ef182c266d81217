// A device that forwards everything to another one, as a base for decorators. Streams and events
// are the inner device's.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "offload/device.h"

namespace fasa {

class WrappedDevice : public Device {
 public:
  // `inner` outlives this.
  explicit WrappedDevice(Device& inner) : Device(inner.identity()), inner_(inner) {}

  MemoryUse memory(MemorySpace space) const override { return inner_.memory(space); }
  Stream create_stream(StreamPriority priority, std::string_view name) override {
    return inner_.create_stream(priority, name);
  }
  Event create_event() override { return inner_.create_event(); }
  void record(EventView event, StreamView stream) override { inner_.record(event, stream); }
  double seconds_at(EventView event) override { return inner_.seconds_at(event); }
  TransferTotals transfers() override { return inner_.transfers(); }
  void set_timeline(Timeline* timeline) override { inner_.set_timeline(timeline); }

 protected:
  void do_synchronize(StreamView stream) override { inner_.synchronize(stream); }
  void do_wait(StreamView stream, EventView event, OperationTag tag) override {
    inner_.wait(stream, event, tag);
  }
  bool passed(EventView event, Patience patience) override {
    if (patience == Patience::kNone) return inner_.done(event);
    inner_.synchronize(event);
    return true;
  }
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override {
    inner_.enqueue(call, stream, tag);
  }
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override {
    inner_.copy_all(ranges, kind, stream, tag);
  }
  void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
               OperationTag tag) override {
    inner_.fill(destination, byte, bytes, stream, tag);
  }

  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override {
    Buffer buffer = inner_.allocate(space, bytes, purpose);
    std::byte* data = buffer.data();
    const std::lock_guard lock(mutex_);
    buffers_.insert_or_assign(data, std::move(buffer));
    return data;
  }
  void do_free(MemorySpace, std::byte* data, size_t) noexcept override {
    Buffer freed;  // freed after the lock: freeing waits for work that may copy
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(data);
    if (found == buffers_.end()) return;
    freed = std::move(found->second);
    buffers_.erase(found);
  }

  // Bytes of the allocation that contains `data`; 0 if it is not this device's.
  size_t allocation_bytes(const void* data) const {
    const auto* at = static_cast<const std::byte*>(data);
    const std::lock_guard lock(mutex_);
    auto buffer = buffers_.upper_bound(at);
    if (buffer == buffers_.begin()) return 0;
    --buffer;
    const size_t bytes = buffer->second.bytes();
    return at < buffer->first + bytes ? bytes : 0;
  }

  Device& inner_;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, Buffer> buffers_;
};

}  // namespace fasa
