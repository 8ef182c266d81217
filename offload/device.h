// The small interface that is all the rest of the code sees of a device: memory, streams, events,
// copies and the table of kernels. One contract suite runs over every implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/model_table.h"
#include "kernels/params.h"
#include "kernels/table.h"
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

class Stream {
 public:
  Stream() = default;
  Stream(Device* device, StreamView view) : device_(device), view_(view) {}
  Stream(Stream&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), view_(other.view_) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(view_, other.view_);
    return *this;
  }
  ~Stream();  // waits for the stream's work
  StreamView view() const { return view_; }

 private:
  Device* device_ = nullptr;
  StreamView view_;
};

class Event {
 public:
  Event() = default;
  Event(Device* device, EventView view) : device_(device), view_(view) {}
  Event(Event&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), view_(other.view_) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(view_, other.view_);
    return *this;
  }
  ~Event();
  EventView view() const { return view_; }

 private:
  Device* device_ = nullptr;
  EventView view_;
};

// Work of several streams, recorded once, to be launched any number of times.
class Graph {
 public:
  Graph() = default;
  Graph(Device* device, GraphView view) : device_(device), view_(view) {}
  Graph(Graph&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), view_(other.view_) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(view_, other.view_);
    return *this;
  }
  ~Graph();  // waits for its launches
  explicit operator bool() const { return device_ != nullptr; }
  GraphView view() const { return view_; }

 private:
  Device* device_ = nullptr;
  GraphView view_;
};

// Somebody who holds device memory that can be spared.
class MemoryReclaimer {
 public:
  virtual ~MemoryReclaimer() = default;
  // Asked for when an allocation of `bytes` was refused; true where something was given back. Its
  // own allocations may be refused meanwhile: then it says false. May wait for streams.
  virtual bool reclaim(MemorySpace space, size_t bytes) = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // "cpu", "emulated", "cuda:0"
  // Device and host memory are one tier: rows stay where they are written.
  bool unified() const { return kind() == DeviceKind::kCpu; }

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
  // event that was never recorded holds nobody up.
  virtual void wait(StreamView stream, EventView event) = 0;
  // Block the host. They throw DeviceError, as does done(), when work that they wait for has
  // failed: with it fail later work in its stream and in streams that wait for later events of that
  // one. (The cpu device throws from the failing call itself, and later calls go on.)
  virtual void synchronize(StreamView stream) = 0;
  virtual void synchronize(EventView event) = 0;
  virtual bool done(EventView event) = 0;

  // Sides lie where `kind` says: the device's inside one allocation, the host's anywhere in host
  // memory, alive until the stream has passed. Fills are of device memory.
  virtual void copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                    StreamView stream) = 0;
  // All of them, in any order: a device may have one call for them. None overlaps another.
  virtual void copy_all(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream);
  virtual void fill(void* destination, int byte, size_t bytes, StreamView stream) = 0;
  virtual const KernelTable& kernels() const = 0;
  // What models run between attentions; null where host code does it, through launch().
  virtual const ModelKernelTable* model_kernels() const { return nullptr; }
  // Runs host code as a kernel of the stream (cpu and emulated only; CUDA throws UsageError, and
  // has CudaDevice::run_on_host for what needs no device memory).
  // `name` must outlive the device.
  virtual void launch(StreamView stream, const char* name, std::function<KernelWork()> work) = 0;

  // Graphs. Nothing that `enqueue` enqueues runs; each launch runs all of it, as if it were
  // enqueued anew on the streams that it was enqueued on: after what these did before, and before
  // what they do next. Events from outside that it waits for are waited for at each launch, as they
  // are recorded then; those that it records stand for the whole launch. It may enqueue on `origin`
  // and `others` alone, neither allocate nor wait on the host, and no copy may touch host memory
  // that is not the device's. What it throws is thrown on, and nothing is enqueued then. Events
  // that were waited for outlive the graph's last launch. Throws UsageError where work of that kind
  // cannot be recorded, DeviceError where the runtime refuses, BudgetError where the graph itself
  // finds no memory. One recording of a device at a time, without a timeline.
  virtual bool records_graphs() const { return false; }
  virtual Graph record_graph(StreamView origin, std::span<const StreamView> others,
                             const char* name, const std::function<void()>& enqueue);
  // False, and nothing is done, where another stream has the place of `origin` now, which was
  // destroyed. The others are there.
  virtual bool launch(GraphView graph);
  virtual uint64_t graph_bytes(GraphView graph) const;  // of device memory that it holds

  // Seconds on the device's clock at which the recorded work ended (virtual on the emulated
  // device, where both have to be waited for first; wall time elsewhere).
  virtual double seconds_at(EventView event) = 0;
  virtual bool virtual_clock() const { return false; }
  virtual TransferTotals transfers() = 0;

  // What the streams do from now on is recorded there; null (the start): nowhere, and nothing is
  // paid. All of a stream's operations are there once it was synchronized. The timeline outlives
  // its use: until another one is set, which waits for what is under way. One thread at a time,
  // with no other thread enqueueing meanwhile. A device may have none.
  virtual void set_timeline(Timeline* timeline) { static_cast<void>(timeline); }
  virtual Timeline* timeline() const { return nullptr; }
  // What the operations enqueued from now on, on any stream, are for.
  virtual void set_tag(OperationTag tag) { static_cast<void>(tag); }

 protected:
  friend class Buffer;
  friend class Stream;
  friend class Event;
  friend class Graph;
  virtual std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) = 0;
  virtual void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept = 0;
  virtual void destroy_stream(StreamView stream) noexcept = 0;
  virtual void destroy_event(EventView event) noexcept = 0;
  virtual void destroy_graph(GraphView) noexcept {}

 private:
  std::vector<MemoryReclaimer*> reclaimers_;
};

}  // namespace fasa
