#include "kernels/cuda/speculate_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

template <>
void enqueue(const SpeculateParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
