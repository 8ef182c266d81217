// Statuses of the CUDA runtime as DeviceErrors that carry call, file, line and bytes.
#pragma once

#include <cstdint>
#include <string>

#include "offload/cuda/cuda_calls.h"
#include "runtime/base/source_place.h"

namespace fasa {

// What was called, where, and for how many bytes (0: none).
struct CudaCall {
  const char* name;
  uint64_t bytes = 0;
  SourcePlace where = SourcePlace::current();
};

// "cudaMemcpyAsync of 512 bytes failed at offload/cuda/cuda_stream.cc:41: cudaErrorInvalidValue (invalid
// argument)"
std::string cuda_failure(CudaCalls& calls, CudaStatus status, const CudaCall& call);

// Throws DeviceError where the status is a failure; the thread's last error is cleared then.
void check_cuda(CudaCalls& calls, CudaStatus status, const CudaCall& call);

// After such a failure the GPU's context is gone: it belongs to work enqueued earlier, whichever
// call reports it, and every later call gives it again.
bool loses_context(CudaStatus status);

}  // namespace fasa
