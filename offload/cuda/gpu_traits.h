// The traits of GPUs under the CUDA device, also available in builds without CUDA, for plans.
#pragma once

#include "offload/device_traits.h"

namespace fasa {

// Assumes cuBLASLt, which a machine may lack.
DeviceTraits gpu_traits();

}  // namespace fasa
