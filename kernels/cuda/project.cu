#include "kernels/cuda/project_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

template <>
void enqueue(const ProjectParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
