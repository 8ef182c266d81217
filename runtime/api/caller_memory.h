// Checks that the APIs of other languages make of a caller's addresses before anything is enqueued: in C
// and Python nobody else knows where a pointer leads, and a kernel that follows a wrong one loses the
// whole GPU to the process.
#pragma once

#include <cstddef>

#include "offload/memory_location.h"
#include "runtime/base/tensor_view.h"

namespace fasa {

// Throws UsageError naming the argument where the device's kernels do not reach its first element, or
// where that is not a multiple of `alignment`. Null passes: the shapes say whether it may be.
void require_reachable(Device& device, const char* name, const void* data, size_t alignment);

inline void require_reachable(Device& device, const char* name, const ConstTensorView& view) {
  require_reachable(device, name, view.data, static_cast<size_t>(dtype_bytes(view.dtype)));
}

// Throws UsageError naming the argument.
void require_aligned(const char* name, const void* data, size_t alignment);

}  // namespace fasa
