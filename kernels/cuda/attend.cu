#include "kernels/cuda/attend_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

void attend(const AttendParams& params, StreamView stream) {
  launch_attend(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
