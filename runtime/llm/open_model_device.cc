#include "runtime/llm/open_model_device.h"

#include <fmt/format.h>

#include "offload/cuda_choice.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/llm/layer_engine.h"

namespace fasa {

std::unique_ptr<Device> open_model_device(const DeviceOptions& options, const ModelConfig& model) {
  const bool has_cuda = cuda_platform().calls != nullptr;
  const std::string obstacle = has_cuda ? kernel_obstacle(model) : "";
  if (obstacle.empty()) return open_device(options);
  if (parse_cuda_name(options.name)) {
    throw UsageError(fmt::format("device '{}' does not run {}; allowed: auto, cpu, emulated",
                                 options.name, obstacle));
  }
  DeviceOptions own = options;
  if (own.name == "auto") {
    log_notice(fmt::format("device 'auto' takes the cpu: GPUs do not run {}", obstacle));
    own.name = "cpu";
  }
  return open_device(own);
}

}  // namespace fasa
