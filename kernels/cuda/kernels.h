// The launchers of the CUDA device: params.h and model_params.h say what each of them does. They
// enqueue on the stream (a cudaStream_t), wait for nothing and read lengths on the device only:
// what they start depends on the host's arguments alone, so that a step can be captured as a CUDA
// graph. Throw DeviceError where a launch is refused.
#pragma once

#include "kernels/expert_params.h"
#include "kernels/model_params.h"
#include "kernels/packed_params.h"
#include "kernels/params.h"
#include "runtime/base/stream_view.h"

namespace fasa::cuda {

// Specialised beside each body (append.cu, ...): a kernel that has none does not link. The
// projection is the kernels' own, without cuBLASLt.
template <typename Params>
void enqueue(const Params& params, StreamView stream);

// Rows up to which reading the weights takes longer than multiplying without tensor cores.
inline constexpr int64_t kFewRows = 16;

}  // namespace fasa::cuda
