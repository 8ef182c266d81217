#include "kernels/cuda/enqueue.cuh"
#include "kernels/cuda/model/project_packed_inl.h"
#include "kernels/cuda/model/unpack_inl.h"

namespace fasa::cuda {

template void enqueue(const ProjectPackedParams&, StreamView);
template void enqueue(const UnpackParams&, StreamView);

}  // namespace fasa::cuda
