// A device that passes everything on to another one: decorators change what they are about.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "offload/device.h"

namespace fasa {

class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(Device& inner) : inner_(inner) {}

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
    inner_.copy(destination, source, bytes, kind, stream);
  }
  void fill(void* destination, int byte, size_t bytes, StreamView stream) override {
    inner_.fill(destination, byte, bytes, stream);
  }
  const KernelTable& kernels() const override { return inner_.kernels(); }
  void launch(StreamView stream, const char* name, std::function<KernelWork()> work) override {
    inner_.launch(stream, name, std::move(work));
  }
  double seconds_at(EventView event) override { return inner_.seconds_at(event); }
  bool virtual_clock() const override { return inner_.virtual_clock(); }
  TransferTotals transfers() override { return inner_.transfers(); }
  void set_timeline(Timeline* timeline) override { inner_.set_timeline(timeline); }
  Timeline* timeline() const override { return inner_.timeline(); }
  void set_tag(OperationTag tag) override { inner_.set_tag(tag); }

 protected:
  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override {
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

 private:
  std::map<std::byte*, Buffer> buffers_;
};

}  // namespace fasa
