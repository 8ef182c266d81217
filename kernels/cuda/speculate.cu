#include "kernels/cuda/speculate_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

void speculate(const SpeculateParams& params, StreamView stream) {
  launch_speculate(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
