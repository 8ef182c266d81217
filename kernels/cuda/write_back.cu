#include "kernels/cuda/write_back_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

void write_back(const WriteBackParams& params, StreamView stream) {
  launch_write_back(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
