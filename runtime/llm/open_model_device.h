// The device that a model runs on.
#pragma once

#include <memory>

#include "offload/open_host_device.h"  // for models that are watched at work
#include "runtime/llm/model_config.h"

namespace fasa {

// As open_device; but `auto` takes the processor for a model whose slices no GPU can score, with a
// notice where the build has CUDA.
std::unique_ptr<Device> open_model_device(const DeviceOptions& options, const ModelConfig& model);

}  // namespace fasa
