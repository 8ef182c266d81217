#include "kernels/cuda/prefill_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

void prefill(const PrefillParams& params, StreamView stream) {
  launch_prefill(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
