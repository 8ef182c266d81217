// Devices for work that is host code.
#pragma once

#include <memory>

#include "offload/open_device.h"

namespace fasa {

// A device that runs host code as kernels (Device::launch), as models that are watched at work do:
// never CUDA. `auto` is the processor, `cuda:N` a UsageError; else as open_device.
std::unique_ptr<Device> open_host_device(const DeviceOptions& options);

}  // namespace fasa
