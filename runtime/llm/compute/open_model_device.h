// Opens the device that a model runs on.
#pragma once

#include <memory>

#include "offload/open_host_device.h"  // for callers that observe the model
#include "runtime/llm/config/model_config.h"

namespace fasa {

// Like open_device, but `auto` chooses the CPU, with a notice, for a model whose slices the GPU
// cannot score.
std::unique_ptr<Device> open_model_device(const DeviceOptions& options, const ModelConfig& model);
// The same with another CUDA runtime than this build's.
std::unique_ptr<Device> open_model_device(const DeviceOptions& options, const ModelConfig& model,
                                          const CudaPlatform& platform);

}  // namespace fasa
