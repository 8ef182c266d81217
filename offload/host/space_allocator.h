// The memory spaces, with limits, of devices that live in host memory.
#pragma once

#include <cstddef>
#include <string_view>

#include "offload/device.h"
#include "offload/device_options.h"
#include "offload/host/host_arena.h"
#include "offload/host/memory_limit.h"

namespace fasa {

// Thread-safe.
class SpaceAllocator {
 public:
  // `unified`: both spaces are host memory, so host_memory bounds their sum and nothing is pinned.
  // Otherwise host space counts as pinned memory, as with a real accelerator.
  SpaceAllocator(const DeviceOptions& options, bool unified);

  // Throws BudgetError; then nothing changes.
  std::byte* allocate(MemorySpace space, size_t bytes, std::string_view purpose);
  void free(MemorySpace space, std::byte* data, size_t bytes) noexcept;
  MemoryUse use(MemorySpace space) const;

 private:
  void take(MemorySpace space, size_t bytes, std::string_view purpose);
  void give(MemorySpace space, size_t bytes) noexcept;

  const bool unified_;
  HostArena arena_;
  MemoryLimit device_;
  MemoryLimit host_;
  MemoryLimit pinned_;
  MemoryLimit host_space_;  // counts only the host space
};

}  // namespace fasa
