#include "runtime/llm/compute/list_gpus.h"

#include <fmt/format.h>

#include "offload/cuda/cuda_choice.h"
#include "offload/open_device.h"
#include "runtime/base/error.h"

namespace fasa {

GpuList list_gpus(const DeviceOptions& options) { return list_gpus(options, cuda_platform()); }

GpuList list_gpus(const DeviceOptions& options, const CudaPlatform& platform) {
  GpuList list;
  if (platform.calls != nullptr) {
    const CudaInventory inventory = take_inventory(*platform.calls);
    for (size_t i = 0; i < inventory.gpus.size(); ++i) {
      list.gpus.push_back({.name = fmt::format("cuda:{}", i),
                           .gpu = inventory.gpus[i],
                           .obstacle = cuda_obstacle(inventory, static_cast<int>(i),
                                                     platform.machine_code, platform.ptx),
                           .rates = {}});
    }
  }
  try {
    const DeviceRates rates = open_auto_gpu(options, platform)->traits().rates;
    list.gpus.at(0).rates = rates;
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    list.obstacle = error.what();
    if (!list.gpus.empty() && list.gpus[0].obstacle.empty()) list.gpus[0].obstacle = list.obstacle;
  }
  return list;
}

}  // namespace fasa
