#include "runtime/llm/open_model_device.h"

#include <fmt/format.h>

#include "kernels/select_plan.h"
#include "offload/cuda/cuda_choice.h"
#include "runtime/base/log.h"

namespace fasa {

std::unique_ptr<Device> open_model_device(const DeviceOptions& options, const ModelConfig& model) {
  const int group = model.query_heads / model.kv_heads;
  const bool has_cuda = cuda_platform().calls != nullptr;
  DeviceOptions own = options;
  if (own.name == "auto" && has_cuda && !cuda_holds_queries(group, model.head_dim)) {
    log_notice(
        fmt::format("device 'auto' selects the cpu: the GPU kernels do not support {} query heads "
                    "of {} dimensions per KV head",
                    group, model.head_dim));
    own.name = "cpu";
  }
  return open_device(own);
}

}  // namespace fasa
