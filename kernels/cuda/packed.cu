#include "kernels/cuda/enqueue.cuh"
#include "kernels/cuda/project_packed_inl.h"
#include "kernels/cuda/unpack_inl.h"

namespace fasa::cuda {

template void enqueue(const ProjectPackedParams&, StreamView);
template void enqueue(const UnpackParams&, StreamView);

}  // namespace fasa::cuda
