#include "kernels/cuda/activate_inl.h"
#include "kernels/cuda/convolve_inl.h"
#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/delta_inl.h"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

template <>
void enqueue(const ConvolveParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const DeltaNetParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const GateParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
