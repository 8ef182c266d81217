// Decides which GPU a device name means and whether it can be used, and words the advice if not.
// Works on descriptions alone, so it needs no GPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "offload/cuda/cuda_calls.h"

namespace fasa {

// The driver's answers about its GPUs.
struct CudaInventory {
  CudaStatus status = cuda_status::kSuccess;
  std::string error;  // "cudaErrorNoDevice (no CUDA-capable device is detected)"
  int driver = 0;     // CUDA versions as 1000 x major + 10 x minor; 0: no driver
  int runtime = 0;
  std::vector<CudaGpu> gpus;
};
CudaInventory take_inventory(CudaCalls& calls);

// The GPU that "cuda:N" or "cuda" (cuda:0) names; empty for names of other devices. Throws
// UsageError if "cuda:" is not followed by a number.
std::optional<int> parse_cuda_name(const std::string& name);

// True if a build's code runs on the GPU. Machine code runs on GPUs of the same major compute
// capability and the same or a later minor one; PTX runs on its own and all newer ones. The lists:
// "75,80", see CudaPlatform.
bool runs_on(const CudaGpu& gpu, const std::string& machine_code, const std::string& ptx);

// Why the GPU of this index cannot be used, and what to do, in one or two sentences; "" if it can.
std::string cuda_obstacle(const CudaInventory& inventory, int index,
                          const std::string& machine_code, const std::string& ptx);

}  // namespace fasa
