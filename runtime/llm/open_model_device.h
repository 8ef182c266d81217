// Opens the device that a model runs on.
#pragma once

#include <memory>

#include "offload/open_host_device.h"  // for callers that observe the model
#include "runtime/llm/model_config.h"

namespace fasa {

// Like open_device, but `auto` chooses the CPU for a model whose slices no GPU can score, with a
// notice if the build has CUDA.
std::unique_ptr<Device> open_model_device(const DeviceOptions& options, const ModelConfig& model);

}  // namespace fasa
