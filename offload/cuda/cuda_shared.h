// State shared by the streams of one CUDA device: runtime, clock, timeline hook and first failure.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_error.h"
#include "offload/cuda/cuda_journal.h"
#include "offload/timeline/timeline_hook.h"

namespace fasa {

// Makes the GPU current for the calling thread and restores the previous one: an engine's thread
// may use another GPU. Costs nothing on machines with one GPU.
class CudaGpuScope {
 public:
  CudaGpuScope(CudaCalls& calls, int gpu, bool only_one);
  CudaGpuScope(const CudaGpuScope&) = delete;  // restores once
  CudaGpuScope& operator=(const CudaGpuScope&) = delete;
  ~CudaGpuScope();

 private:
  CudaCalls& calls_;
  int previous_ = -1;  // -1: nothing to restore
};

// Seconds since the device was opened, by the GPU's timestamps. Thread-safe.
class CudaClock {
 public:
  // Records events on `stream`, which outlives this.
  CudaClock(CudaCalls& calls, void* stream);
  CudaClock(const CudaClock&) = delete;  // owns its event
  CudaClock& operator=(const CudaClock&) = delete;
  ~CudaClock();

  // End time of the work before a recorded event, which must be complete.
  double seconds_at(void* event);
  // Host clock in the device's time base; off by the few us that opening the device took.
  double host_seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double since_base(void* event);

  CudaCalls& calls_;
  void* const stream_;
  std::mutex mutex_;
  void* base_ = nullptr;
  double base_seconds_ = 0;
  std::chrono::steady_clock::time_point start_;
};

class CudaMark;
class CudaStream;

class CudaShared {
 public:
  CudaShared(const CudaPlatform& platform, int gpu, bool only_gpu, void* control_stream)
      : calls(*platform.calls),
        launch(platform.launch),
        index(gpu),
        only_one(only_gpu),
        clock(calls, control_stream) {}

  CudaCalls& calls;
  const std::function<void(const KernelCall&, void*)> launch;
  const int index;
  const bool only_one;
  TimelineHook hook;
  CudaClock clock;
  std::mutex streams_mutex;          // guards the two below; held while waiting for a stream
  std::vector<CudaStream*> streams;  // existing streams
  // Streams that take part in a capture, with the point before it: waiting for such a stream, on
  // any thread, would end the capture.
  std::map<void*, std::shared_ptr<const CudaMark>> captured;
  // Waits for the work of a native stream, or for its work before a capture. Call it with
  // streams_mutex held.
  CudaStatus wait_for(void* native);

  CudaGpuScope enter() { return {calls, index, only_one}; }
  CudaJournal& open_journal(std::string_view stream);

  bool lost() const { return lost_.load(std::memory_order_acquire); }
  // Throws the first failure if the context is lost.
  void require_context() const {
    if (lost()) [[unlikely]]
      throw_lost();
  }
  // Throws DeviceError if `status` is a failure. The error names the call itself or, if the context
  // is lost, all earlier operations that may have failed.
  void check(CudaStatus status, const CudaCall& call) {
    if (status != cuda_status::kSuccess) [[unlikely]]
      fail(status, call);
  }

 private:
  [[noreturn]] void throw_lost() const;
  [[noreturn]] void fail(CudaStatus status, const CudaCall& call);

  mutable std::mutex mutex_;  // guards the members below
  std::deque<CudaJournal> journals_;
  std::string first_failure_;
  std::atomic<bool> lost_ = false;
};

}  // namespace fasa
