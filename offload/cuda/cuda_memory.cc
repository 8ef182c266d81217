#include "offload/cuda/cuda_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "offload/cuda/cuda_error.h"
#include "runtime/base/error.h"
#include "runtime/base/units.h"

namespace fasa {
namespace {

uint64_t free_at_opening(CudaCalls& calls) {
  uint64_t free_bytes = 0, total = 0;
  check_cuda(calls, calls.free_memory(&free_bytes, &total), {"cudaMemGetInfo"});
  return free_bytes - std::min(free_bytes, CudaMemory::kReserve);
}

}  // namespace

CudaMemory::CudaMemory(CudaShared& shared, const CudaGpu& gpu, void* stream,
                       std::optional<uint64_t> limit_bytes)
    : shared_(shared),
      calls_(shared.calls),
      stream_(stream),
      limit_("device_memory", limit_bytes ? *limit_bytes : free_at_opening(calls_)) {
  if (gpu.memory_pools) {
    shared.check(calls_.create_pool(shared.index, &pool_), {"cudaMemPoolCreate"});
  }
}

CudaMemory::~CudaMemory() {
  if (pool_ == nullptr) return;
  calls_.synchronize_stream(stream_);
  calls_.destroy_pool(pool_);
  calls_.take_last_error();
}

std::byte* CudaMemory::try_allocate(size_t bytes) {
  const char* const name = pool_ != nullptr ? "cudaMallocFromPoolAsync" : "cudaMalloc";
  void* data = nullptr;
  CudaStatus status = calls_.allocate(&data, bytes, pool_, stream_);
  if (status == cuda_status::kSuccess) {
    // This stream only orders memory, so it is idle and the wait is free.
    status = calls_.synchronize_stream(stream_);
    if (status != cuda_status::kSuccess) calls_.free(data, pool_, stream_);
  }
  if (status == cuda_status::kOutOfMemory) {
    calls_.take_last_error();
    return nullptr;
  }
  shared_.check(status, {name, bytes});
  return static_cast<std::byte*>(data);
}

std::byte* CudaMemory::allocate(size_t bytes, std::string_view purpose) {
  limit_.take(bytes, purpose);
  try {
    std::byte* data = try_allocate(bytes);
    if (data == nullptr && pool_ != nullptr) {
      // Memory that the pools retain may be fragmented or needed by another pool.
      calls_.trim_pool(pool_);
      data = try_allocate(bytes);
    }
    if (data != nullptr) return data;
    throw_full(bytes, purpose);
  } catch (...) {
    limit_.give(bytes);
    throw;
  }
}

void CudaMemory::throw_full(size_t bytes, std::string_view purpose) {
  uint64_t free_bytes = 0, total = 0;
  const uint64_t used = limit_.use().used_bytes - bytes;
  if (calls_.free_memory(&free_bytes, &total) != cuda_status::kSuccess) calls_.take_last_error();
  throw BudgetError("device_memory", bytes, used, used + free_bytes,
                    fmt::format("{} (within the limit of {}, but cuda:{} has only {} of {} free: "
                                "other processes use the GPU, see nvidia-smi)",
                                purpose, format_bytes(limit_.use().limit_bytes), shared_.index,
                                format_bytes(free_bytes), format_bytes(total)));
}

uint64_t CudaMemory::free_bytes() const {
  uint64_t free_bytes = 0, total = 0;
  if (calls_.free_memory(&free_bytes, &total) != cuda_status::kSuccess) calls_.take_last_error();
  return free_bytes;
}

void CudaMemory::free(std::byte* data, size_t bytes) noexcept {
  // Fails only if the context, and the memory with it, is lost.
  if (calls_.free(data, pool_, stream_) != cuda_status::kSuccess) calls_.take_last_error();
  limit_.give(bytes);
}

void CudaMemory::sample() const {
  if (Timeline* const timeline = shared_.hook.timeline(); timeline != nullptr) {
    timeline->sample(kDeviceMemoryCounter, shared_.clock.host_seconds(),
                     static_cast<double>(use().used_bytes));
  }
}

}  // namespace fasa
