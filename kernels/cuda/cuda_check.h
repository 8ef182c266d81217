// Failures of CUDA calls as DeviceError: the call, what CUDA says, file and line.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/base/source_place.h"

namespace fasa::cuda {

void check(cudaError_t status, const char* call, SourcePlace place = SourcePlace::current());

}  // namespace fasa::cuda
