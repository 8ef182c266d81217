#include "kernels/cuda/resolve_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

void resolve(const ResolveParams& params, StreamView stream) {
  launch_resolve(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
