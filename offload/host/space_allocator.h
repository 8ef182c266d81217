// The memory spaces of devices that live in host memory, with their limits.
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
  // `unified`: both spaces are host memory, so host_memory bounds their sum and nothing is pinned;
  // else host space counts as pinned memory, as it would beside a real accelerator.
  SpaceAllocator(const DeviceOptions& options, bool unified);

  // Throws BudgetError; nothing changes then.
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
  MemoryLimit host_space_;  // counts the host space alone
};

}  // namespace fasa
