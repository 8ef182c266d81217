// The launchers of the CUDA device; params.h and model_params.h define the calls. A launcher
// enqueues on the stream (a cudaStream_t), does not wait, and reads lengths only on the device: the
// kernels it starts depend only on the host's arguments, so a step can be captured as a CUDA graph.
// Throws DeviceError if a launch fails.
#pragma once

#include "kernels/expert_params.h"
#include "kernels/linear_params.h"
#include "kernels/model_params.h"
#include "kernels/packed_params.h"
#include "kernels/params.h"
#include "runtime/base/stream_view.h"

namespace fasa::cuda {

// Specialised next to each body (append.cu, ...): a missing kernel does not link. The projection is
// the project's own kernel, without cuBLASLt.
template <typename Params>
void enqueue(const Params& params, StreamView stream);

// Up to this many rows, reading the weights takes longer than multiplying without tensor cores.
inline constexpr int64_t kFewRows = 16;
// Whether a projection of `rows` rows takes the kernels for few, which sum in another order.
constexpr bool takes_few(const ProjectParams& params, int64_t rows) {
  return params.apart || rows <= kFewRows;
}

}  // namespace fasa::cuda
