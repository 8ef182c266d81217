// Which GPU a device name means, whether it can be used, and what to do where it can't. Decisions
// over descriptions alone, so that they need no GPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "offload/cuda/cuda_calls.h"

namespace fasa {

// What the driver answers when it is asked for its GPUs.
struct CudaInventory {
  CudaStatus status = cuda_status::kSuccess;
  std::string error;  // "cudaErrorNoDevice (no CUDA-capable device is detected)"
  int driver = 0;     // CUDA versions as 1000 x major + 10 x minor; 0: there is no driver
  int runtime = 0;
  std::vector<CudaGpu> gpus;
};
CudaInventory take_inventory(CudaCalls& calls);

// The GPU that "cuda:N" or "cuda" (cuda:0) names; none where the name is none of a CUDA device.
// Throws UsageError for "cuda:" with anything but a number.
std::optional<int> parse_cuda_name(const std::string& name);

// A build's code runs on a GPU of its major compute capability and the same or a later minor one;
// PTX on every one that is not older. The lists: "75,80", see CudaPlatform.
bool runs_on(const CudaGpu& gpu, const std::string& machine_code, const std::string& ptx);

// Why the GPU of this index can't be used, and what to do: one sentence or two, "" where it can.
std::string cuda_obstacle(const CudaInventory& inventory, int index,
                          const std::string& machine_code, const std::string& ptx);

}  // namespace fasa
