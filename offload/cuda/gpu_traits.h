// What every GPU is like under the CUDA device, in builds without CUDA too: for plans.
#pragma once

#include "offload/device_traits.h"

namespace fasa {

// With cuBLASLt, which a machine may lack.
DeviceTraits gpu_traits();

}  // namespace fasa
