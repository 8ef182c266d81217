#include "kernels/cuda/project_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/model_kernels.h"

namespace fasa::cuda {

void project(const ProjectParams& params, StreamView stream) {
  launch_project(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
