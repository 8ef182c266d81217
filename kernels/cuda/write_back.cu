#include "kernels/cuda/write_back_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const WriteBackParams&, StreamView);

}  // namespace fasa::cuda
