// How fast the link to a GPU is: measured once when a device is opened, because the bytes that its
// kernels move over the link are known to no clock.
#pragma once

#include "offload/cuda/cuda_shared.h"
#include "offload/cuda/pinned_arena.h"

namespace fasa {

struct CudaLinkRates {
  double h2d = 0;  // bytes per second of a large copy
  double d2h = 0;
};

// Copies kLinkProbeBytes on `stream` and back, through memory of `pool` (null: none) that it gives
// back. Throws BudgetError or DeviceError.
CudaLinkRates measure_link(CudaShared& shared, PinnedArena& pinned, void* pool, void* stream);

inline constexpr size_t kLinkProbeBytes = size_t{8} << 20;

}  // namespace fasa
