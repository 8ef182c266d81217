#include "kernels/cuda/model/project_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const ProjectParams&, StreamView);

}  // namespace fasa::cuda
