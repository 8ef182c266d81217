#include "kernels/cuda/activate_inl.h"
#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/heads_inl.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/norm_inl.h"

namespace fasa::cuda {

template <>
void enqueue(const AddNormParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const AnglesParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const HeadsParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const ActivateParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const AddBiasParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const TakeSinksParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
