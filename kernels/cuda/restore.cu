#include "kernels/cuda/restore_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

void restore(const RestoreParams& params, StreamView stream) {
  launch_restore(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
