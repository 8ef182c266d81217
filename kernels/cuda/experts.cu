#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/experts_inl.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/project_experts_inl.h"
#include "kernels/cuda/project_packed_experts_inl.h"

namespace fasa::cuda {

template <>
void enqueue(const ChooseExpertsParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const ArrangeExpertsParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const ProjectExpertsParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const ProjectPackedExpertsParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}
template <>
void enqueue(const MixExpertsParams& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
