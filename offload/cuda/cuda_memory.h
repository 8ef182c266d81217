// A GPU's memory under a budget: a CUDA memory pool that retains freed memory, because a driver
// allocation takes as long as a decode step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "offload/cuda/cuda_shared.h"
#include "offload/host/memory_limit.h"

namespace fasa {

// Thread-safe.
class CudaMemory {
 public:
  // `stream` orders the pool's work and outlives this. The default limit is the GPU's free memory
  // minus kReserve. Throws DeviceError.
  CudaMemory(CudaShared& shared, const CudaGpu& gpu, void* stream,
             std::optional<uint64_t> limit_bytes);
  CudaMemory(const CudaMemory&) = delete;  // owns its pool
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory();

  // The memory can be used on every stream when this returns. Throws BudgetError if the limit or
  // the GPU's free memory (which other processes share) does not suffice, DeviceError if the GPU
  // fails; then nothing changes.
  std::byte* allocate(size_t bytes, std::string_view purpose);
  // Streams must be done with the memory.
  void free(std::byte* data, size_t bytes) noexcept;
  MemoryUse use() const { return limit_.use(); }
  // Reports the bytes in use to the timeline, if one is set.
  void sample() const;
  // Counts memory that the driver allocated on our behalf. Throws BudgetError if the limit is
  // exceeded.
  void count(uint64_t bytes, std::string_view purpose) { limit_.take(bytes, purpose); }
  void discount(uint64_t bytes) noexcept { limit_.give(bytes); }
  uint64_t free_bytes() const;          // free now on the GPU; 0 if unknown
  void* pool() const { return pool_; }  // null: a GPU without pools

  // Reserved for the driver's own allocations at run time: lazily loaded code, local memory.
  static constexpr uint64_t kReserve = uint64_t{256} << 20;

 private:
  std::byte* try_allocate(size_t bytes);  // null: the GPU has too little
  [[noreturn]] void throw_full(size_t bytes, std::string_view purpose);

  CudaShared& shared_;
  CudaCalls& calls_;
  void* const stream_;
  void* pool_ = nullptr;  // null: a GPU without pools
  MemoryLimit limit_;
};

}  // namespace fasa
