// An accelerator emulated on the host: separate memory with a hard budget, concurrent streams, a
// link and a virtual clock. Its kernels are the CPU's. Work is really executed, in some legal
// order, and timed by VirtualClock.
//
// The host waits for more than it asked for: synchronize() executes every operation enqueued
// before, on any stream, because all of them compete for the link. So virtual times are the same in
// every run, if one thread enqueues.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "offload/device.h"
#include "offload/device_options.h"
#include "offload/emulated/emulated_stream.h"
#include "offload/host/space_allocator.h"
#include "offload/host/thread_count.h"

namespace fasa {

class EmulatedDevice final : public Device, private HostWork {
 public:
  explicit EmulatedDevice(const DeviceOptions& options);

  MemoryUse memory(MemorySpace space) const override { return memory_.use(space); }
  Stream create_stream(StreamPriority priority, std::string_view name) override;
  Event create_event() override;
  void record(EventView event, StreamView stream) override;
  double seconds_at(EventView event) override;
  TransferTotals transfers() override;
  void set_timeline(Timeline* timeline) override;

  // Takes the time of such a copy without moving data.
  void model_copy(size_t bytes, CopyKind kind, StreamView stream, OperationTag tag);
  // A call's time, with the bytes of `work`, which runs in its place.
  void model_call(const KernelCall& call, StreamView stream, std::function<KernelWork()> work,
                  OperationTag tag);
  double launch_seconds() const { return launch_seconds_; }

 private:
  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override;
  void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept override;
  void do_synchronize(StreamView stream) override;
  void do_wait(StreamView stream, EventView event, OperationTag tag) override;
  // Refers to real execution; virtual time does not matter.
  bool passed(EventView event, Patience patience) override;
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override;
  // Throws UsageError if the device side of a copy is not inside one device allocation, or the host
  // side is in device memory.
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override;
  void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
               OperationTag tag) override;
  void run(StreamView stream, const char* name, std::function<KernelWork()> work,
           OperationTag tag) override;

  void sample_memory();
  void enqueue_copy(size_t bytes, CopyKind kind, StreamView stream, OperationTag tag,
                    std::function<void()> move);
  void check_side(const char* what, const void* data, size_t bytes, bool in_device) const;

  const ThreadCount threads_;
  const double launch_seconds_;
  SpaceAllocator memory_;
  EmulatedShared shared_;
  mutable std::mutex blocks_mutex_;
  std::map<const std::byte*, size_t> device_blocks_;  // start -> bytes
};

}  // namespace fasa
