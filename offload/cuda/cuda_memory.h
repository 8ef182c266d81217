// A GPU's memory under our budget: a pool of the runtime's that keeps what was given back, because
// asking the driver again takes as long as a decode step.
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
  // `stream` orders the pool's work and outlives this. Without a limit, all that the GPU has free
  // now but for kReserve. Throws DeviceError.
  CudaMemory(CudaShared& shared, const CudaGpu& gpu, void* stream,
             std::optional<uint64_t> limit_bytes);
  CudaMemory(const CudaMemory&) = delete;  // owns its pool
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory();

  // Usable on every stream on return. Throws BudgetError where our limit or the GPU's free memory
  // does not suffice (others may have taken it), DeviceError where the GPU fails; nothing changes.
  std::byte* allocate(size_t bytes, std::string_view purpose);
  // Streams are done with it.
  void free(std::byte* data, size_t bytes) noexcept;
  MemoryUse use() const { return limit_.use(); }
  // Tells the timeline, where one is set, what is in use now.
  void sample() const;
  // What the driver placed there on our behalf. Throws BudgetError where that passes the limit.
  void count(uint64_t bytes, std::string_view purpose) { limit_.take(bytes, purpose); }
  void discount(uint64_t bytes) noexcept { limit_.give(bytes); }
  uint64_t free_bytes() const;          // of the GPU, now; 0 where it cannot be told
  void* pool() const { return pool_; }  // null: a GPU without pools

  // For what the driver places there itself while it runs: code loaded late, local memory.
  static constexpr uint64_t kReserve = uint64_t{256} << 20;

 private:
  std::byte* try_allocate(size_t bytes);  // null: the GPU has not so much
  [[noreturn]] void throw_full(size_t bytes, std::string_view purpose);

  CudaShared& shared_;
  CudaCalls& calls_;
  void* const stream_;
  void* pool_ = nullptr;  // null: a GPU without pools
  MemoryLimit limit_;
};

}  // namespace fasa
