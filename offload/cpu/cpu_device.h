// The processor as a device: one memory tier, nothing asynchronous. Every operation is complete on
// return and a failed one throws at once, so streams and events only carry time.
#pragma once

#include <tbb/task_arena.h>

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

#include "offload/device.h"
#include "offload/device_options.h"
#include "offload/host/space_allocator.h"
#include "offload/host/thread_count.h"
#include "offload/timeline/timeline_hook.h"
#include "runtime/base/parallel.h"

namespace fasa {

// Runs work in the device's arena. Concurrent callers share its threads.
class CpuExecutor {
 public:
  explicit CpuExecutor(int threads) : arena_(threads) {}
  // Throws DeviceError naming the operation when the work throws.
  template <typename Work>
  void run(const char* name, const Work& work) {
    try {
      execute_in(arena_, [&] { work(); });
    } catch (...) {
      rethrow_named(name);
    }
  }

 private:
  [[noreturn]] static void rethrow_named(const char* name);
  tbb::task_arena arena_;
};

// State shared by the streams of one device.
struct CpuShared {
  explicit CpuShared(int threads) : executor(threads) {}
  double seconds_now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  CpuExecutor executor;
  TimelineHook hook;
};

// The target of this device's StreamViews.
class CpuStream {
 public:
  CpuStream(CpuShared& shared, std::string_view name)
      : shared_(shared), timeline_key_(shared.hook.open_stream(name)) {}
  CpuStream(const CpuStream&) = delete;  // one name of the timeline's
  CpuStream& operator=(const CpuStream&) = delete;
  ~CpuStream() { shared_.hook.close_stream(timeline_key_); }

  // Runs `work`, which returns KernelWork, immediately.
  template <typename Work>
  void run(const char* name, OperationTag tag, const Work& work) {
    if (Timeline* timeline = shared_.hook.timeline(); timeline != nullptr) [[unlikely]] {
      KernelWork done;
      const double start = shared_.seconds_now();
      shared_.executor.run(name, [&] { done = work(); });
      add_to(*timeline, name, tag, start, done);
      return;
    }
    shared_.executor.run(name, work);
  }
  // Adds an operation that began at `start` and ends now.
  void add_to(Timeline& timeline, const char* name, OperationTag tag, double start,
              const KernelWork& work) const;

 private:
  CpuShared& shared_;
  const TimelineStream timeline_key_;
};

class CpuDevice final : public Device, private HostWork {
 public:
  explicit CpuDevice(const DeviceOptions& options);

  MemoryUse memory(MemorySpace space) const override { return memory_.use(space); }
  Stream create_stream(StreamPriority priority, std::string_view name) override;
  Event create_event() override;
  void record(EventView event, StreamView stream) override;
  double seconds_at(EventView event) override;
  TransferTotals transfers() override;
  void set_timeline(Timeline* timeline) override;

 private:
  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override;
  void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept override;
  void do_synchronize(StreamView) override {}
  void do_wait(StreamView, EventView, OperationTag) override {}
  bool passed(EventView, Patience) override { return true; }
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override;
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override;
  void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
               OperationTag tag) override;
  void run(StreamView stream, const char* name, std::function<KernelWork()> work,
           OperationTag tag) override;

  // Runs work on behalf of the stream, if there is one.
  template <typename Work>
  void run_now(StreamView stream, const char* name, OperationTag tag, const Work& work);
  void sample_memory();
  void count(CopyKind kind, size_t bytes, double seconds);

  const ThreadCount threads_;
  CpuShared shared_;
  SpaceAllocator memory_;
  std::mutex mutex_;  // guards totals_
  TransferTotals totals_;
};

}  // namespace fasa
