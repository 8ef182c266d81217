#include "kernels/cuda/enqueue.cuh"
#include "kernels/cuda/model/activate_inl.h"
#include "kernels/cuda/model/convolve_inl.h"
#include "kernels/cuda/model/delta_inl.h"

namespace fasa::cuda {

template void enqueue(const ConvolveParams&, StreamView);
template void enqueue(const DeltaNetParams&, StreamView);
template void enqueue(const GateParams&, StreamView);

}  // namespace fasa::cuda
