// The small interface that is all the rest of the code sees of a device: memory, streams, events,
// copies and kernels (kernels/calls.h). Host code and graphs are optional: host_work() and graphs()
// say whether there are any. One contract suite runs over every implementation.
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
  kDevice,  // the device's own; only its kernels and copies may touch it. Limit: device_memory
  kHost,    // host memory that the device's copies reach, pinned where that matters. Limits:
            // host_memory, pinned_memory
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
  uint64_t limit_bytes = 0;  // UINT64_MAX: none
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

// Owners. Each only moves: it stands for one resource of its device, which outlives it.
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
  ~Buffer();  // frees; the caller has made sure that no stream still uses it

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

// Streams, events and graphs.
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
using Stream = Owner<StreamView>;  // its end waits for the stream's work
using Event = Owner<EventView>;
using Graph =
    Owner<GraphView>;  // work of several streams, recorded once; its end waits for its launches

// A holder of device memory that it can give back.
class MemoryReclaimer {
 public:
  virtual ~MemoryReclaimer() = default;
  // Asked for when an allocation of `bytes` was refused; true where something was given back. Its
  // own allocations may be refused meanwhile: then it says false. May wait for streams.
  virtual bool reclaim(MemorySpace space, size_t bytes) = 0;
};

// Runs host code as kernels of its streams: of devices whose memory host code can read.
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
  // Nothing that `enqueue` enqueues runs; each launch runs all of it, as if it were enqueued anew
  // on the streams that it was enqueued on: after what these did before, and before what they do
  // next. Events from outside that it waits for are waited for at each launch, as they are recorded
  // then; those that it records stand for the whole launch. It may enqueue on `origin` and `others`
  // alone, neither allocate nor wait on the host, and no copy may touch host memory that is not the
  // device's. What it throws is thrown on, and nothing is enqueued then. Events that were waited
  // for outlive the graph's last launch. Throws UsageError where work of that kind cannot be
  // recorded, DeviceError where the runtime refuses, BudgetError where the graph itself finds no
  // memory. One recording of a device at a time, without a timeline.
  virtual Graph record_graph(StreamView origin, std::span<const StreamView> others,
                             const char* name, const std::function<void()>& enqueue) = 0;
  // False, and nothing is done, where another stream has the place of `origin` now, which was
  // destroyed. The others are there.
  virtual bool launch_graph(GraphView graph) = 0;
  virtual uint64_t graph_bytes(GraphView graph) const = 0;  // of device memory that it holds
};

// Who a device is: what never changes while it is open.
struct DeviceIdentity {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;  // "cpu", "emulated", "cuda:0"
  DeviceTraits traits;
  // What it can do beside; null: it cannot. They are parts of the device.
  HostWork* host_work = nullptr;
  GraphRecorder* graphs = nullptr;
  // Where its streams look for the timeline that records them; null: they never are recorded.
  const std::atomic<Timeline*>* timeline = nullptr;
};

// One thread enqueues on a stream at a time.
class Device {
 public:
  explicit Device(DeviceIdentity identity) : identity_(std::move(identity)) {}
  Device(const Device&) = delete;  // what it gave out refers to it
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  DeviceKind kind() const { return identity_.kind; }
  const std::string& name() const { return identity_.name; }
  const DeviceTraits& traits() const { return identity_.traits; }
  bool unified() const { return traits().unified; }
  HostWork* host_work() const { return identity_.host_work; }
  GraphRecorder* graphs() const { return identity_.graphs; }

  // Zero bytes are legal. Aligned to 64 bytes (host arenas: to a page). Throws BudgetError naming
  // the limit, the purpose and the bytes, once no reclaimer has anything left to give back; nothing
  // changes then. The contents are indeterminate.
  Buffer allocate(MemorySpace space, size_t bytes, std::string_view purpose);
  virtual MemoryUse memory(MemorySpace space) const = 0;
  // Asked in turn before an allocation fails, on the thread that allocates.
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
  // Block the host. They throw DeviceError, as does done(), when work that they wait for has
  // failed: with it fail later work in its stream and in streams that wait for later events of that
  // one. (The cpu device throws from the failing call itself, and later calls go on.)
  void synchronize(StreamView stream) { do_synchronize(stream); }
  void synchronize(EventView event) { passed(event, Patience::kUntilPassed); }
  bool done(EventView event) { return passed(event, Patience::kNone); }

  // What operations are enqueued for, `tag`, is what timelines and errors tell of them.
  void enqueue(const KernelCall& call, StreamView stream, OperationTag tag = {}) {
    do_enqueue(call, stream, tag);
  }
  // Sides lie where `kind` says: the device's inside one allocation, the host's anywhere in host
  // memory, alive until the stream has passed. Fills are of device memory.
  void copy(void* destination, const void* source, size_t bytes, CopyKind kind, StreamView stream,
            OperationTag tag = {}) {
    const CopyRange range{destination, source, bytes};
    do_copy({&range, 1}, kind, stream, tag);
  }
  // All of them, in any order: a device may have one call for them. None overlaps another.
  void copy_all(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
                OperationTag tag = {}) {
    do_copy(ranges, kind, stream, tag);
  }
  void fill(void* destination, int byte, size_t bytes, StreamView stream, OperationTag tag = {}) {
    do_fill(destination, byte, bytes, stream, tag);
  }
  // host_work()->run(); throws UsageError where there is none.
  void launch(StreamView stream, const char* name, std::function<KernelWork()> work,
              OperationTag tag = {});

  // Seconds on the device's clock at which the recorded work ended (virtual on the emulated
  // device, where both have to be waited for first; wall time elsewhere).
  virtual double seconds_at(EventView event) = 0;
  bool virtual_clock() const { return traits().virtual_clock; }
  virtual TransferTotals transfers() = 0;

  // What the streams do from now on is recorded there; null (the start): nowhere, at no cost. All
  // of a stream's operations are there once it was synchronized. The timeline must live until
  // another is set, which waits for what is under way. One thread at a time,
  // with no other thread enqueueing meanwhile. A device may have none.
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
  // Whether the event's recording has passed, which it has after kUntilPassed.
  virtual bool passed(EventView event, Patience patience) = 0;
  virtual void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) = 0;
  virtual void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
                       OperationTag tag) = 0;
  virtual void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
                       OperationTag tag) = 0;
  void show_timeline(const std::atomic<Timeline*>& place) { identity_.timeline = &place; }
  // Of a device that measures them while it is opened.
  void show_rates(const DeviceRates& rates) { identity_.traits.rates = rates; }

 private:
  DeviceIdentity identity_;
  std::vector<MemoryReclaimer*> reclaimers_;
};

const char* copy_name(CopyKind kind);
// What a copy reads, writes and moves over the link.
KernelWork copy_work(CopyKind kind, uint64_t bytes);

}  // namespace fasa
