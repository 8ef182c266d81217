#include "runtime/api/caller_memory.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace fasa {

void require_aligned(const char* name, const void* data, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(data) % alignment == 0) return;
  throw UsageError(
      fmt::format("{} begins at address {}: allowed: multiples of {}, the bytes of an "
                  "element",
                  name, data, alignment));
}

void require_reachable(Device& device, const char* name, const void* data, size_t alignment) {
  if (data == nullptr) return;
  require_aligned(name, data, alignment);
  const MemoryLocation location = location_of(device, data);
  if (location == MemoryLocation::kShared || location == MemoryLocation::kDevice) return;
  throw UsageError(fmt::format("{} lies in {}: allowed: the memory of {}, or pinned host memory",
                               name,
                               location == MemoryLocation::kHost ? "host memory that is not pinned"
                                                                 : "another device's memory",
                               device.name()));
}

}  // namespace fasa
