#include "offload/cuda/cuda_shared.h"

#include <fmt/format.h>

#include "offload/cuda/cuda_graph.h"
#include "runtime/base/error.h"

namespace fasa {

CudaGpuScope::CudaGpuScope(CudaCalls& calls, int gpu, bool only_one) : calls_(calls) {
  if (only_one) return;
  int current = gpu;
  check_cuda(calls, calls.current_gpu(&current), {"cudaGetDevice"});
  if (current == gpu) return;
  check_cuda(calls, calls.use_gpu(gpu), {"cudaSetDevice"});
  previous_ = current;
}

CudaGpuScope::~CudaGpuScope() {
  if (previous_ >= 0 && calls_.use_gpu(previous_) != cuda_status::kSuccess) {
    calls_.take_last_error();
  }
}

CudaClock::CudaClock(CudaCalls& calls, void* stream) : calls_(calls), stream_(stream) {
  check_cuda(calls, calls.create_event(&base_), {"cudaEventCreate"});
  try {
    check_cuda(calls, calls.record(base_, stream), {"cudaEventRecord"});
    check_cuda(calls, calls.synchronize_event(base_), {"cudaEventSynchronize"});
  } catch (...) {
    calls.destroy_event(base_);
    throw;
  }
  start_ = std::chrono::steady_clock::now();
}

CudaClock::~CudaClock() {
  if (calls_.destroy_event(base_) != cuda_status::kSuccess) calls_.take_last_error();
}

double CudaClock::since_base(void* event) {
  float milliseconds = 0;
  check_cuda(calls_, calls_.elapsed(&milliseconds, base_, event), {"cudaEventElapsedTime"});
  return static_cast<double>(milliseconds) * 1e-3;
}

// The runtime returns differences as float milliseconds: after four seconds the resolution is a
// quarter of a microsecond, after an hour a quarter of a millisecond. So the base event is renewed.
double CudaClock::seconds_at(void* event) {
  constexpr double kFar = 4;
  const std::lock_guard lock(mutex_);
  double seconds = since_base(event);
  if (seconds > kFar) {
    void* next = nullptr;
    check_cuda(calls_, calls_.create_event(&next), {"cudaEventCreate"});
    try {
      check_cuda(calls_, calls_.record(next, stream_), {"cudaEventRecord"});
      check_cuda(calls_, calls_.synchronize_event(next), {"cudaEventSynchronize"});
      base_seconds_ += since_base(next);
    } catch (...) {
      calls_.destroy_event(next);
      throw;
    }
    std::swap(base_, next);
    calls_.destroy_event(next);
    seconds = since_base(event);
  }
  return base_seconds_ + seconds;
}

CudaStatus CudaShared::wait_for(void* native) {
  const auto found = captured.find(native);
  return found == captured.end() ? calls.synchronize_stream(native)
                                 : calls.synchronize_event(found->second->native());
}

CudaJournal& CudaShared::open_journal(std::string_view stream) {
  const std::lock_guard lock(mutex_);
  return journals_.emplace_back(std::string(stream));
}

void CudaShared::throw_lost() const {
  const std::lock_guard lock(mutex_);
  throw DeviceError(first_failure_);
}

void CudaShared::fail(CudaStatus status, const CudaCall& call) {
  if (!loses_context(status)) check_cuda(calls, status, call);
  calls.take_last_error();
  const std::lock_guard lock(mutex_);
  if (!lost_) {
    std::string suspects;
    for (const CudaJournal& journal : journals_) {
      const std::string under_way = journal.under_way();
      if (under_way.empty()) continue;
      suspects += (suspects.empty() ? "" : "; ") + under_way;
    }
    first_failure_ = fmt::format(
        "cuda:{}: an operation failed; candidates: {}. Reported by {}. This process can no longer "
        "use the GPU; restart it, with CUDA_LAUNCH_BLOCKING=1 to see which operation failed",
        index, suspects.empty() ? "none that fasa enqueued" : suspects,
        cuda_failure(calls, status, call));
    lost_ = true;
  }
  throw DeviceError(first_failure_);
}

}  // namespace fasa
