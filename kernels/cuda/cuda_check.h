// Turns failed CUDA calls into DeviceError: the call, CUDA's message, file and line.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/base/source_location.h"

namespace fasa::cuda {

void check(cudaError_t status, const char* call,
           SourceLocation location = SourceLocation::current());

}  // namespace fasa::cuda
