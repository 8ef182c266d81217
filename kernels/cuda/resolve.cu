#include "kernels/cuda/resolve_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

template <>
void enqueue(const ResolveParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

template <>
void enqueue(const FetchParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
