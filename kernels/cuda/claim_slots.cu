#include "kernels/cuda/claim_slots_inl.h"

#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const ClaimSlotsParams&, StreamView);

}  // namespace fasa::cuda
