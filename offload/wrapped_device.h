// A device that passes everything on to another one: decorators change what they are about.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "offload/device.h"

namespace fasa {

class WrappedDevice : public Device {
 public:
  // `inner` outlives this.
  explicit WrappedDevice(Device& inner) : inner_(inner) {}

  DeviceKind kind() const override { return inner_.kind(); }
  std::string name() const override { return inner_.name(); }
  MemoryUse memory(MemorySpace space) const override { return inner_.memory(space); }
  Stream create_stream(StreamPriority priority, std::string_view name) override {
    return inner_.create_stream(priority, name);
  }
  Event create_event() override { return inner_.create_event(); }
  void record(EventView event, StreamView stream) override { inner_.record(event, within(stream)); }
  void wait(StreamView stream, EventView event) override { inner_.wait(within(stream), event); }
  void synchronize(StreamView stream) override { inner_.synchronize(within(stream)); }
  void synchronize(EventView event) override { inner_.synchronize(event); }
  bool done(EventView event) override { return inner_.done(event); }
  void copy(void* destination, const void* source, size_t bytes, CopyKind kind,
            StreamView stream) override {
    inner_.copy(destination, source, bytes, kind, within(stream));
  }
  void fill(void* destination, int byte, size_t bytes, StreamView stream) override {
    inner_.fill(destination, byte, bytes, within(stream));
  }
  const KernelTable& kernels() const override { return inner_.kernels(); }
  const ModelKernelTable* model_kernels() const override { return inner_.model_kernels(); }
  void launch(StreamView stream, const char* name, std::function<KernelWork()> work) override {
    inner_.launch(within(stream), name, std::move(work));
  }
  bool records_graphs() const override { return inner_.records_graphs(); }
  Graph record_graph(StreamView origin, std::span<const StreamView> others, const char* name,
                     const std::function<void()>& enqueue) override {
    std::vector<StreamView> inner;
    for (const StreamView other : others) inner.push_back(within(other));
    return inner_.record_graph(within(origin), inner, name, enqueue);
  }
  bool launch(GraphView graph) override { return inner_.launch(graph); }
  uint64_t graph_bytes(GraphView graph) const override { return inner_.graph_bytes(graph); }
  double seconds_at(EventView event) override { return inner_.seconds_at(event); }
  bool virtual_clock() const override { return inner_.virtual_clock(); }
  TransferTotals transfers() override { return inner_.transfers(); }
  void set_timeline(Timeline* timeline) override { inner_.set_timeline(timeline); }
  Timeline* timeline() const override { return inner_.timeline(); }
  void set_tag(OperationTag tag) override { inner_.set_tag(tag); }

 protected:
  // The inner device's stream that one of this device's stands for.
  virtual StreamView within(StreamView stream) const { return stream; }

  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override {
    Buffer buffer = inner_.allocate(space, bytes, purpose);
    std::byte* data = buffer.data();
    const std::lock_guard lock(mutex_);
    buffers_.insert_or_assign(data, std::move(buffer));
    return data;
  }
  void do_free(MemorySpace, std::byte* data, size_t) noexcept override {
    Buffer freed;  // after the lock is gone: freeing waits for what is under way, which may copy
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(data);
    if (found == buffers_.end()) return;
    freed = std::move(found->second);
    buffers_.erase(found);
  }
  // Streams and events are the inner device's own.
  void destroy_stream(StreamView) noexcept override {}
  void destroy_event(EventView) noexcept override {}

  // Bytes of the allocation that `data` lies in; 0 where it is none of this device's.
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
