#include "kernels/cuda/cuda_check.h"

#include <string>

#include "runtime/base/error.h"

namespace fasa::cuda {

void check(cudaError_t status, const char* call, SourcePlace place) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(call) + ": " + cudaGetErrorString(status) + " (" +
                    cudaGetErrorName(status) + "), " + place.file + ":" +
                    std::to_string(place.line));
}

}  // namespace fasa::cuda
