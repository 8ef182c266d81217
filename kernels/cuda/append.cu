#include "kernels/cuda/append_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

template <>
void enqueue(const AppendParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
