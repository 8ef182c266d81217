#include "runtime/llm/compute/open_model_device.h"

#include <fmt/format.h>

#include "offload/cuda/cuda_calls.h"
#include "runtime/base/log.h"

namespace fasa {

std::unique_ptr<Device> open_model_device(const DeviceOptions& options, const ModelConfig& model) {
  return open_model_device(options, model, cuda_platform());
}

std::unique_ptr<Device> open_model_device(const DeviceOptions& options, const ModelConfig& model,
                                          const CudaPlatform& platform) {
  auto device = open_device(options, platform);
  const int group = model.query_heads / model.kv_heads;
  const auto scores = device->traits().scores;
  if (options.name != "auto" || scores == nullptr || scores(group, model.head_dim)) return device;
  log_notice(
      fmt::format("device 'auto' selects the cpu: the GPU kernels do not support {} query heads of "
                  "{} dimensions per KV head on {}",
                  group, model.head_dim, device->name()));
  device.reset();
  DeviceOptions own = options;
  own.name = "cpu";
  return open_device(own, platform);
}

}  // namespace fasa
