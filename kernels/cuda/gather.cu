#include "kernels/cuda/gather_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

template <>
void enqueue(const GatherParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
