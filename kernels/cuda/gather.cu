#include "kernels/cuda/gather_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const GatherParams&, StreamView);

}  // namespace fasa::cuda
