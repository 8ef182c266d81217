#include "kernels/cuda/gather_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

void gather(const GatherParams& params, StreamView stream) {
  launch_gather(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
