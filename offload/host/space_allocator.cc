#include "offload/host/space_allocator.h"

#include <algorithm>
#include <string>

#include "kernels/layout.h"
#include "offload/host/control_group.h"
#include "offload/host/topology.h"
#include "runtime/base/error.h"

namespace fasa {

SpaceAllocator::SpaceAllocator(const DeviceOptions& options, bool unified)
    : unified_(unified),
      arena_(options.numa, Topology::machine().node_of_process(), options.host_alias_bytes),
      device_("device_memory", options.device_memory),
      host_("host_memory",
            // Aliased memory is mostly address space: the group's limit is not for it.
            options.host_memory || options.host_alias_bytes ? options.host_memory
                                                            : ControlGroup::read().memory_left),
      pinned_("pinned_memory", options.pinned_memory),
      host_space_("host_memory", std::nullopt) {}

void SpaceAllocator::take(MemorySpace space, size_t bytes, std::string_view purpose) {
  MemoryLimit& first = space == MemorySpace::kDevice ? device_ : host_;
  first.take(bytes, purpose);
  try {
    if (space == MemorySpace::kDevice && unified_) host_.take(bytes, purpose);
    if (space == MemorySpace::kHost && !unified_) pinned_.take(bytes, purpose);
  } catch (...) {
    first.give(bytes);
    throw;
  }
  if (space == MemorySpace::kHost) host_space_.take(bytes, purpose);
}

void SpaceAllocator::give(MemorySpace space, size_t bytes) noexcept {
  if (space == MemorySpace::kDevice) device_.give(bytes);
  if (space == MemorySpace::kHost || unified_) host_.give(bytes);
  if (space == MemorySpace::kHost) host_space_.give(bytes);
  if (space == MemorySpace::kHost && !unified_) pinned_.give(bytes);
}

std::byte* SpaceAllocator::allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  take(space, bytes, purpose);
  std::byte* data = nullptr;
  try {
    data = space == MemorySpace::kHost ? arena_.allocate_aliased(bytes)
                                       : arena_.allocate(bytes, static_cast<size_t>(kAlignment));
  } catch (...) {
    give(space, bytes);
    throw;
  }
  if (data != nullptr) return data;
  // The OS failed below our own limit: report whichever is smaller, limit or RAM.
  give(space, bytes);
  throw BudgetError("host_memory", bytes, host_.use().used_bytes,
                    std::min(host_.use().limit_bytes, Topology::machine().memory_bytes()),
                    std::string(purpose));
}

void SpaceAllocator::free(MemorySpace space, std::byte* data, size_t bytes) noexcept {
  arena_.free(data);
  give(space, bytes);
}

MemoryUse SpaceAllocator::use(MemorySpace space) const {
  if (space == MemorySpace::kDevice) return device_.use();
  MemoryUse use = host_space_.use();
  use.limit_bytes = host_.use().limit_bytes;
  if (!unified_) use.limit_bytes = std::min(use.limit_bytes, pinned_.use().limit_bytes);
  return use;
}

}  // namespace fasa
