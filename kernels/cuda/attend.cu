#include "kernels/cuda/attend_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const AttendParams&, StreamView);

}  // namespace fasa::cuda
