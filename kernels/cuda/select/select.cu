#include "kernels/cuda/select/select_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const SelectParams&, StreamView);

}  // namespace fasa::cuda
