#include "kernels/cuda/append_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

void append(const AppendParams& params, StreamView stream) {
  launch_append(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
