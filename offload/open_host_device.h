// Devices for work that is host code.
#pragma once

#include <memory>

#include "offload/open_device.h"

namespace fasa {

// A device that runs host code as kernels (Device::launch), which models need: never CUDA. `auto`
// is the processor, `cuda:N` a UsageError; else as open_device.
std::unique_ptr<Device> open_host_device(const DeviceOptions& options);

}  // namespace fasa
