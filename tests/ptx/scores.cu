// The kernel that tests of scores launch alone.
#include "kernels/cuda/cuda_launcher.cuh"
#include "tests/simt/scores_kernel.h"

namespace fasa::cuda {

template __global__ void run_kernel(const __grid_constant__ ScoresKernel kernel);

}  // namespace fasa::cuda
