// CUDA runtime statuses as DeviceErrors with call, file, line and bytes.
#pragma once

#include <cstdint>
#include <string>

#include "offload/cuda/cuda_calls.h"
#include "runtime/base/source_location.h"

namespace fasa {

// A call, its source location, and its bytes (0: none).
struct CudaCall {
  const char* name;
  uint64_t bytes = 0;
  SourceLocation where = SourceLocation::current();
};

// "cudaMemcpyAsync of 512 bytes failed at offload/cuda/cuda_stream.cc:41: cudaErrorInvalidValue
// (invalid argument)"
std::string cuda_failure(CudaCalls& calls, CudaStatus status, const CudaCall& call);

// Throws DeviceError if the status is a failure, and clears the thread's last error.
void check_cuda(CudaCalls& calls, CudaStatus status, const CudaCall& call);

// True for failures that destroy the GPU's context. They belong to work enqueued earlier, whichever
// call reports them, and every later call returns them again.
bool loses_context(CudaStatus status);

}  // namespace fasa
