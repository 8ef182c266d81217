// What the CUDA device's StreamViews and EventViews point to.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "offload/cuda_record.h"
#include "offload/cuda_shared.h"
#include "runtime/base/error.h"

namespace fasa {

// The first host function of a stream that threw.
struct CudaHostFailure {
  std::atomic<uint64_t> number{UINT64_MAX};  // of the operation; what came before is fine
  std::string message;                       // written before `number`
};

// One recording of an event is known by its stream's journal and how far that had come.
struct CudaEvent {
  void* native = nullptr;
  CudaJournal* journal = nullptr;  // null: never recorded
  uint64_t number = 0;
  std::shared_ptr<CudaHostFailure> failure;
  TimelineStream stream = 0;
  // What the stream did last, for timelines.
  const char* last_name = nullptr;
  OperationTag last_tag;
};

// A stream of ours, or an engine's that we use. One thread enqueues at a time.
class CudaStream {
 public:
  enum class Ownership : uint8_t { kOurs, kTheirs };

  CudaStream(CudaShared& shared, void* native, Ownership ownership, std::string_view name);
  CudaStream(const CudaStream&) = delete;  // owns its stream
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream();  // waits for the stream's work

  // Runs `enqueue`, which enqueues one operation on native() and returns its status.
  template <typename Enqueue>
  void run(const CudaCall& call, const KernelWork& work, const Enqueue& enqueue) {
    shared_.require_context();
    const CudaGpuScope scope = shared_.enter();
    journal_.note(call.name, shared_.tap.tag());
    const bool recorded = shared_.tap.timeline() != nullptr;
    if (recorded) [[unlikely]]
      begin_record(call.name, work);
    shared_.check(enqueue(), call);
    if (recorded) [[unlikely]]
      record_.end(native_);
  }
  // A launcher of the kernel tables. It throws what it cannot launch, or leaves it as the thread's
  // last error; a lost context is told from that.
  template <typename Launch>
  void run_kernel(const char* name, const Launch& launch) {
    run({name}, {}, [&] {
      try {
        launch(shared_, StreamView{DeviceKind::kCuda, native_});
      } catch (const DeviceError&) {
        const CudaStatus status = shared_.calls.take_last_error();
        if (!loses_context(status)) throw;
        return status;
      }
      return shared_.calls.take_last_error();
    });
  }
  // Host code in stream order, which may not call CUDA nor touch device memory. What it throws
  // fails later host functions of this stream, and waits for it.
  void run_on_host(const char* name, std::function<KernelWork()> work);

  void record(CudaEvent& event);
  void wait(const CudaEvent& event);
  void synchronize();  // throws what failed
  void flush(Timeline* timeline) { record_.flush(timeline); }

  void* native() const { return native_; }

 private:
  void begin_record(const char* name, const KernelWork& work);

  CudaShared& shared_;
  void* const native_;
  const Ownership ownership_;
  const TimelineStream timeline_key_;
  CudaJournal& journal_;
  const std::shared_ptr<CudaHostFailure> failure_ = std::make_shared<CudaHostFailure>();
  CudaRecord record_;
};

// Throws what the host functions of a stream up to operation `number` have thrown.
void throw_host_failure(const CudaHostFailure& failure, uint64_t number);

}  // namespace fasa
