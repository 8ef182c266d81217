#include "kernels/cuda/cuda_check.h"

#include <string>

#include "kernels/cuda/launch_error.h"

namespace fasa::cuda {

void check(cudaError_t status, const char* call, SourceLocation location) {
  if (status == cudaSuccess) return;
  throw LaunchError(std::string(call) + ": " + cudaGetErrorString(status) + " (" +
                        cudaGetErrorName(status) + "), " + location.file + ":" +
                        std::to_string(location.line),
                    status);
}

}  // namespace fasa::cuda
