#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/project_packed_inl.h"
#include "kernels/cuda/unpack_inl.h"

namespace fasa::cuda {

template <>
void enqueue(const ProjectPackedParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const UnpackParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
