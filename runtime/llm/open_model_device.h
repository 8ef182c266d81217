// The device that a model runs on.
#pragma once

#include <memory>

#include "offload/open_host_device.h"  // for models that are watched at work
#include "runtime/llm/model_config.h"

namespace fasa {

// As open_device; but a family that CUDA does not run is refused by name before anything is opened,
// and `auto` takes the processor for it, with a notice where the build has CUDA.
std::unique_ptr<Device> open_model_device(const DeviceOptions& options, const ModelConfig& model);

}  // namespace fasa
