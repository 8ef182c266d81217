#include "kernels/cuda/activate_inl.h"
#include "kernels/cuda/convolve_inl.h"
#include "kernels/cuda/delta_inl.h"
#include "kernels/cuda/enqueue.cuh"

namespace fasa::cuda {

template void enqueue(const ConvolveParams&, StreamView);
template void enqueue(const DeltaNetParams&, StreamView);
template void enqueue(const GateParams&, StreamView);

}  // namespace fasa::cuda
