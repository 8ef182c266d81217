// Devices for work that is host code.
#pragma once

#include <memory>

#include "offload/open_device.h"

namespace fasa {

// Opens a device that runs host code as kernels (Device::launch), as instrumented models need:
// never CUDA. `auto` is the processor, `cuda:N` throws UsageError; otherwise as open_device.
std::unique_ptr<Device> open_host_device(const DeviceOptions& options);

}  // namespace fasa
