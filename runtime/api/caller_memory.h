// Checks a caller's addresses before any work is enqueued. The C and Python APIs use them: they get
// raw pointers, and a kernel that reads an invalid one loses the GPU for the whole process.
#pragma once

#include <cstddef>

#include "offload/memory_location.h"
#include "runtime/base/tensor_view.h"

namespace fasa {

// Throws UsageError naming the argument if the device's kernels cannot access its first element, or
// if it is not a multiple of `alignment`. Null passes: shape checks decide whether it is allowed.
void require_reachable(Device& device, const char* name, const void* data, size_t alignment);

inline void require_reachable(Device& device, const char* name, const ConstTensorView& view) {
  require_reachable(device, name, view.data, static_cast<size_t>(dtype_bytes(view.dtype)));
}

// Throws UsageError naming the argument.
void require_aligned(const char* name, const void* data, size_t alignment);

}  // namespace fasa
