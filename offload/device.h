// The device interface that the rest of the code uses: memory, streams, events, copies and kernels
// (kernels/calls.h). Host code and graphs are optional; host_work() and graphs() are null if
// unsupported. One contract test suite covers every implementation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/calls.h"
#include "offload/device_traits.h"
#include "offload/operation_tag.h"
#include "runtime/base/stream_view.h"

namespace fasa {

enum class MemorySpace : uint8_t {
  kDevice,  // device memory; only kernels and copies access it. Limit: device_memory
  kHost,    // host memory for copies to and from the device, pinned if needed. Limits: host_memory,
            // pinned_memory
};
enum class CopyKind : uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kHostToHost };
enum class StreamPriority : uint8_t { kNormal, kHigh };

struct EventView {
  void* native = nullptr;
};
struct GraphView {
  void* native = nullptr;
};

struct MemoryUse {
  uint64_t used_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t limit_bytes = 0;  // UINT64_MAX: no limit
};

struct TransferTotals {
  uint64_t h2d_bytes = 0;
  uint64_t d2h_bytes = 0;
  uint64_t h2d_operations = 0;
  uint64_t d2h_operations = 0;
  double h2d_seconds = 0;  // on the device's clock: time the link was busy in that direction
  double d2h_seconds = 0;
};

// One of several copies.
struct CopyRange {
  void* destination = nullptr;
  const void* source = nullptr;
  size_t bytes = 0;
};

class Device;
class Timeline;

// Move-only owners of one resource of a device, which outlives them.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, MemorySpace space, std::byte* data, size_t bytes)
      : device_(device), space_(space), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Buffer();  // frees; no stream may use it any more

  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  MemorySpace space() const { return space_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void swap(Buffer& other) {
    std::swap(device_, other.device_);
    std::swap(space_, other.space_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device* device_ = nullptr;
  MemorySpace space_ = MemorySpace::kHost;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Owner of a stream, event or graph.
template <typename View>
class Owner {
 public:
  using Destroy = void (*)(View) noexcept;
  Owner() = default;
  Owner(View view, Destroy destroy) : view_(view), destroy_(destroy) {}
  Owner(Owner&& other) noexcept
      : view_(other.view_), destroy_(std::exchange(other.destroy_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    std::swap(view_, other.view_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~Owner() {
    if (destroy_ != nullptr) destroy_(view_);
  }
  explicit operator bool() const { return destroy_ != nullptr; }
  View view() const { return view_; }

 private:
  View view_;
  Destroy destroy_ = nullptr;  // null: owns nothing
};
using Stream = Owner<StreamView>;  // its destructor waits for the stream's work
using Event = Owner<EventView>;
using Graph =
    Owner<GraphView>;  // work of several streams, recorded once; its end waits for its launches

// A holder of device memory that it can release on request.
class MemoryReclaimer {
 public:
  virtual ~MemoryReclaimer() = default;
  // Called when an allocation of `bytes` was refused. Returns true if it freed memory; its own
  // allocations may be refused meanwhile, then it returns false. May wait for streams.
  virtual bool reclaim(MemorySpace space, size_t bytes) = 0;
};

// Runs host code as kernels, on devices whose memory host code can read.
class HostWork {
 public:
  virtual ~HostWork() = default;
  // `name` outlives the device.
  virtual void run(StreamView stream, const char* name, std::function<KernelWork()> work,
                   OperationTag tag) = 0;
};

class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  // Records the work that `enqueue` enqueues, without running it. Each launch runs it as if it were
  // enqueued anew on its streams: after their earlier work and before their later work. A launch
  // waits for outside events that the work waits for, as recorded at that time; events that the
  // work records stand for the whole launch. `enqueue` may use only `origin` and `others`, may
  // neither allocate nor wait on the host, and its copies may not touch foreign host memory. Its
  // exceptions propagate; then nothing is enqueued. Events that the work waits for outlive the
  // graph's last launch. Throws UsageError for work that cannot be recorded, DeviceError if the
  // runtime refuses, BudgetError if the graph does not fit in memory. One recording per device at a
  // time, without a timeline.
  virtual Graph record_graph(StreamView origin, std::span<const StreamView> others,
                             const char* name, const std::function<void()>& enqueue) = 0;
  // Returns false, without launching, if `origin` was destroyed and another stream has taken its
  // address. The other streams must exist.
  virtual bool launch_graph(GraphView graph) = 0;
  virtual uint64_t graph_bytes(GraphView graph) const = 0;  // device memory that it holds
};

// The properties of a device that are constant while it is open.
struct DeviceIdentity {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;  // "cpu", "emulated", "cuda:0"
  DeviceTraits traits;
  // Optional capabilities, parts of the device; null if unsupported.
  HostWork* host_work = nullptr;
  GraphRecorder* graphs = nullptr;
  // The location in which streams find their timeline; null: no timelines.
  const std::atomic<Timeline*>* timeline = nullptr;
};

// One thread enqueues on a stream at a time.
class Device {
 public:
  explicit Device(DeviceIdentity identity) : identity_(std::move(identity)) {}
  Device(const Device&) = delete;  // its resources refer to it
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  DeviceKind kind() const { return identity_.kind; }
  const std::string& name() const { return identity_.name; }
  const DeviceTraits& traits() const { return identity_.traits; }
  bool unified() const { return traits().unified; }
  HostWork* host_work() const { return identity_.host_work; }
  GraphRecorder* graphs() const { return identity_.graphs; }

  // Zero bytes are allowed. Aligned to 64 bytes (host arenas: to a page); contents indeterminate.
  // Throws BudgetError with limit, purpose and bytes if the reclaimers cannot free enough; then
  // nothing changes.
  Buffer allocate(MemorySpace space, size_t bytes, std::string_view purpose);
  virtual MemoryUse memory(MemorySpace space) const = 0;
  // Called in order before an allocation fails, on the allocating thread.
  void add_reclaimer(MemoryReclaimer& reclaimer) { reclaimers_.push_back(&reclaimer); }
  void remove_reclaimer(MemoryReclaimer& reclaimer) { std::erase(reclaimers_, &reclaimer); }

  virtual Stream create_stream(StreamPriority priority, std::string_view name) = 0;
  virtual Event create_event() = 0;
  // The event stands for all work enqueued on the stream so far; recording again moves it.
  virtual void record(EventView event, StreamView stream) = 0;
  // Work enqueued on the stream after this starts no earlier than the event's last recording. An
  // event that was never recorded delays nothing.
  void wait(StreamView stream, EventView event, OperationTag tag = {}) {
    do_wait(stream, event, tag);
  }
  // These block the host. They and done() throw DeviceError if work that they wait for has failed.
  // Later work in the failed stream, and in streams that wait for its later events, fails too. (The
  // cpu device throws from the failing call itself, and later calls proceed.)
  void synchronize(StreamView stream) { do_synchronize(stream); }
  void synchronize(EventView event) { passed(event, Patience::kUntilPassed); }
  bool done(EventView event) { return passed(event, Patience::kNone); }

  // `tag` names the purpose of an operation in timelines and errors.
  void enqueue(const KernelCall& call, StreamView stream, OperationTag tag = {}) {
    do_enqueue(call, stream, tag);
  }
  // `kind` names the side of each address: device addresses lie inside one allocation, host
  // addresses anywhere in host memory, valid until the stream has passed. Fills write device
  // memory.
  void copy(void* destination, const void* source, size_t bytes, CopyKind kind, StreamView stream,
            OperationTag tag = {}) {
    const CopyRange range{destination, source, bytes};
    do_copy({&range, 1}, kind, stream, tag);
  }
  // Copies all ranges, in any order, in one call if the device has one. Ranges must not overlap.
  void copy_all(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
                OperationTag tag = {}) {
    do_copy(ranges, kind, stream, tag);
  }
  void fill(void* destination, int byte, size_t bytes, StreamView stream, OperationTag tag = {}) {
    do_fill(destination, byte, bytes, stream, tag);
  }
  // Calls host_work()->run(); throws UsageError if host code is unsupported.
  void launch(StreamView stream, const char* name, std::function<KernelWork()> work,
              OperationTag tag = {});

  // Time on the device's clock at which the recorded work ended. On the emulated device time is
  // virtual and the event must have been waited for; elsewhere it is wall time.
  virtual double seconds_at(EventView event) = 0;
  bool virtual_clock() const { return traits().virtual_clock; }
  virtual TransferTotals transfers() = 0;

  // Records the streams' work from now on in `timeline`; null (the default): off, at no cost. The
  // timeline has all operations of a stream after that stream was synchronized. It must live until
  // another one is set, which waits for work in flight. Not thread-safe; no other thread may
  // enqueue meanwhile. A device may lack timelines.
  virtual void set_timeline(Timeline* timeline) { static_cast<void>(timeline); }
  Timeline* timeline() const {
    const std::atomic<Timeline*>* const place = identity_.timeline;
    return place == nullptr ? nullptr : place->load(std::memory_order_acquire);
  }
  const DeviceIdentity& identity() const { return identity_; }

 protected:
  friend class Buffer;
  enum class Patience : uint8_t { kNone, kUntilPassed };

  virtual std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) = 0;
  virtual void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept = 0;
  virtual void do_synchronize(StreamView stream) = 0;
  virtual void do_wait(StreamView stream, EventView event, OperationTag tag) = 0;
  // Whether the recorded work is complete; always true after kUntilPassed.
  virtual bool passed(EventView event, Patience patience) = 0;
  virtual void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) = 0;
  virtual void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
                       OperationTag tag) = 0;
  virtual void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
                       OperationTag tag) = 0;
  void show_timeline(const std::atomic<Timeline*>& place) { identity_.timeline = &place; }
  // For devices that measure their rates when opened.
  void show_rates(const DeviceRates& rates) { identity_.traits.rates = rates; }

 private:
  DeviceIdentity identity_;
  std::vector<MemoryReclaimer*> reclaimers_;
};

const char* copy_name(CopyKind kind);
// Bytes that a copy reads, writes and moves over the link.
KernelWork copy_work(CopyKind kind, uint64_t bytes);

}  // namespace fasa
