#include "offload/cuda/cuda_stream.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "kernels/cuda/launch_error.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

struct HostFunction {
  const char* name;
  uint64_t number;
  std::function<KernelWork()> work;
  std::shared_ptr<CudaHostFailure> failure;
};

void fail(const HostFunction& function, const char* reason) {
  function.failure->message =
      fmt::format("operation '{}' failed on the host: {}", function.name, reason);
  function.failure->number.store(function.number, std::memory_order_release);
}

// Runs on a thread of the CUDA runtime, one at a time per stream.
void run_host_function(void* argument) {
  const std::unique_ptr<HostFunction> function(static_cast<HostFunction*>(argument));
  if (function->failure->number.load(std::memory_order_acquire) != UINT64_MAX) return;
  try {
    function->work();
  } catch (const std::exception& error) {
    fail(*function, error.what());
  } catch (...) {
    fail(*function, "unknown exception");
  }
}

}  // namespace

CudaStream& cuda_stream_of(StreamView stream) {
  if (stream.kind != DeviceKind::kCuda || stream.native == nullptr) {
    throw UsageError(
        "the stream does not belong to the CUDA device; make it with create_stream, or adopt an "
        "existing stream with adopt_stream");
  }
  return *static_cast<CudaStream*>(stream.native);
}

void throw_host_failure(const CudaHostFailure& failure, uint64_t number) {
  if (failure.number.load(std::memory_order_acquire) <= number) throw DeviceError(failure.message);
}

CudaStream::CudaStream(CudaShared& shared, void* native, Ownership ownership, std::string_view name)
    : shared_(shared),
      native_(native),
      ownership_(ownership),
      timeline_key_(shared.hook.open_stream(name)),
      journal_(shared.open_journal(name)),
      record_(shared) {
  const std::lock_guard lock(shared.streams_mutex);
  shared.streams.push_back(this);
}

CudaStream::~CudaStream() {
  CudaCalls& calls = shared_.calls;
  {
    const std::lock_guard lock(shared_.streams_mutex);
    std::erase(shared_.streams, this);
    if (shared_.wait_for(native_) != cuda_status::kSuccess) calls.take_last_error();
  }
  journal_.passed(journal_.enqueued());
  if (ownership_ == Ownership::kOurs && calls.destroy_stream(native_) != cuda_status::kSuccess) {
    calls.take_last_error();
  }
  if (tail_.native != nullptr && calls.destroy_event(tail_.native) != cuda_status::kSuccess) {
    calls.take_last_error();
  }
  shared_.hook.close_stream(timeline_key_);
}

void CudaStream::begin_record(const char* name, OperationTag tag, const KernelWork& work) {
  record_.begin({.kind = TimelineEntry::Kind::kWork,
                 .stream = timeline_key_,
                 .name = name,
                 .tag = tag,
                 .work = work,
                 .enqueued = 0,
                 .span = {},
                 .link = {},
                 .awaited = {}},
                native_);
}

// The launcher's error, or the last one, reveals a lost context.
void CudaStream::run_kernel(const KernelCall& call, OperationTag tag) {
  run({kernel_name(call)}, tag, {}, [&] {
    try {
      shared_.launch(call, native_);
    } catch (const cuda::LaunchError& error) {
      if (!loses_context(error.status())) throw;
      return CudaStatus{error.status()};
    } catch (const DeviceError&) {
      const CudaStatus status = shared_.calls.take_last_error();
      if (!loses_context(status)) throw;
      return status;
    }
    return shared_.calls.take_last_error();
  });
}

void CudaStream::run_on_host(const char* name, OperationTag tag, std::function<KernelWork()> work) {
  CudaCapture::forbid("host code");  // it would run only once
  auto function = std::make_unique<HostFunction>(
      HostFunction{name, journal_.enqueued() + 1, std::move(work), failure_});
  run({name}, tag, {}, [&] {
    const CudaStatus status = shared_.calls.run_on_host(native_, run_host_function, function.get());
    if (status == cuda_status::kSuccess) function.release();  // the runtime's thread deletes it
    return status;
  });
}

void CudaStream::record(CudaEvent& event) {
  shared_.require_context();
  const CudaGpuScope scope = shared_.enter();
  CudaCapture* const capture = CudaCapture::current();
  if (capture != nullptr) [[unlikely]]
    capture->require(*this);
  shared_.check(shared_.calls.record(event.native, native_), {"cudaEventRecord"});
  event.capture = capture != nullptr ? capture->number() : 0;
  event.mark = capture != nullptr ? capture->mark() : nullptr;
  event.journal = &journal_;
  event.number = journal_.enqueued();
  event.failure = failure_;
  event.stream = timeline_key_;
  event.last_name = journal_.last_name();
  event.last_tag = journal_.last_tag();
}

void CudaStream::wait(const CudaEvent& event, OperationTag tag) {
  shared_.require_context();
  if (CudaCapture* const capture = CudaCapture::current(); capture != nullptr) [[unlikely]] {
    capture->require(*this);
    if (event.capture != capture->number()) return capture->await(event);
    const CudaGpuScope scope = shared_.enter();
    shared_.check(shared_.calls.wait(native_, event.native), {"cudaStreamWaitEvent"});
    return;
  }
  if (event.journal == nullptr) return;
  const CudaGpuScope scope = shared_.enter();
  const bool recorded = shared_.hook.timeline() != nullptr;
  if (recorded) [[unlikely]] {
    record_.begin({.kind = TimelineEntry::Kind::kWait,
                   .stream = timeline_key_,
                   .name = "wait",
                   .tag = tag,
                   .work = {},
                   .enqueued = 0,
                   .span = {},
                   .link = {},
                   .awaited = {event.stream, event.last_name, event.last_tag}},
                  native_);
  }
  shared_.check(shared_.calls.wait(native_, event.point()), {"cudaStreamWaitEvent"});
  if (&event.journal_at() != &journal_) journal_.note_wait(event.journal_at(), event.number_at());
  if (recorded) [[unlikely]]
    record_.end(native_);
}

void CudaStream::join(CudaStream& other) {
  if (tail_.native == nullptr) {
    shared_.check(shared_.calls.create_event(&tail_.native), {"cudaEventCreate"});
  }
  record(tail_);
  other.wait(tail_, {});
}

void CudaStream::place_mark() {
  shared_.require_context();
  const CudaGpuScope scope = shared_.enter();
  if (mark_ == nullptr) mark_ = std::make_shared<CudaMark>(shared_, journal_);
  mark_->place(native_);
}

void CudaStream::follow(const CudaMark& mark) {
  const CudaGpuScope scope = shared_.enter();
  shared_.check(shared_.calls.wait(native_, mark.native()), {"cudaStreamWaitEvent"});
  journal_.note_wait(mark.journal(), mark.number());
  followed_ = &mark;
  followed_at_ = journal_.enqueued();
}

void CudaStream::synchronize_all_but_captured() {
  if (!shared_.captured.contains(native_)) synchronize();
}

void CudaStream::synchronize() {
  CudaCapture::forbid("waiting for a stream");
  shared_.require_context();
  const uint64_t number = journal_.enqueued();
  shared_.check(shared_.calls.synchronize_stream(native_), {"cudaStreamSynchronize"});
  journal_.passed(number);
  record_.flush(shared_.hook.timeline());
  throw_host_failure(*failure_, number);
}

}  // namespace fasa
