#include "kernels/cuda/restore_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const RestoreParams&, StreamView);

}  // namespace fasa::cuda
