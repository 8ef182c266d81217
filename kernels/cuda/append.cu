#include "kernels/cuda/append_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const AppendParams&, StreamView);

}  // namespace fasa::cuda
