#include "kernels/cuda/prefill_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const PrefillParams&, StreamView);

}  // namespace fasa::cuda
