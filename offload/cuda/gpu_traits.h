// The traits of GPUs under the CUDA device, also available in builds without CUDA, for plans.
#pragma once

#include "offload/device_traits.h"

namespace fasa {

// `compute_capability`: x 10. Assumes cuBLASLt, which a machine may lack.
DeviceTraits gpu_traits(int compute_capability);

// For an accelerator that is only described, not named.
inline constexpr int kUsualCapability = 80;

}  // namespace fasa
