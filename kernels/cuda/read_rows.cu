#include "kernels/cuda/read_rows_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

void read_rows(const ReadRowsParams& params, StreamView stream) {
  launch_read_rows(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
