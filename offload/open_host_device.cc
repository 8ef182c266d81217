#include "offload/open_host_device.h"

#include <fmt/format.h>

#include "offload/cuda/cuda_choice.h"
#include "runtime/base/error.h"

namespace fasa {

std::unique_ptr<Device> open_host_device(const DeviceOptions& options) {
  DeviceOptions own = options;
  if (own.name == "auto") own.name = "cpu";
  if (cuda_platform().calls != nullptr && parse_cuda_name(own.name)) {
    throw UsageError(
        fmt::format("device '{}': this reads device memory on the host, which CUDA devices do not "
                    "allow; allowed here: auto, cpu, emulated",
                    own.name));
  }
  return open_device(own);
}

}  // namespace fasa
