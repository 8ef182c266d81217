// The rate of the link to a GPU, measured when the device is opened: no clock times the bytes that
// kernels move over the link.
#pragma once

#include "offload/cuda/cuda_shared.h"
#include "offload/cuda/pinned_arena.h"

namespace fasa {

struct CudaLinkRates {
  double h2d = 0;  // bytes per second of a large copy
  double d2h = 0;
};

// Copies kLinkProbeBytes on `stream` and back through temporary memory of `pool` (null: none).
// Throws BudgetError or DeviceError.
CudaLinkRates measure_link(CudaShared& shared, PinnedArena& pinned, void* pool, void* stream);

inline constexpr size_t kLinkProbeBytes = size_t{8} << 20;

}  // namespace fasa
