// Failures of CUDA calls as DeviceError: the call, what CUDA says, file and line.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

namespace fasa::cuda {

void check(cudaError_t status, const char* call,
           std::source_location place = std::source_location::current());

}  // namespace fasa::cuda
