#include "kernels/cuda/model_kernels.h"

#include "kernels/cuda/activate_inl.h"
#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/heads_inl.h"
#include "kernels/cuda/norm_inl.h"

namespace fasa::cuda {

void add_norm(const AddNormParams& params, StreamView stream) {
  launch_add_norm(params, CudaLauncher(stream));
}
void angles(const AnglesParams& params, StreamView stream) {
  launch_angles(params, CudaLauncher(stream));
}
void heads(const HeadsParams& params, StreamView stream) {
  launch_heads(params, CudaLauncher(stream));
}
void activate(const ActivateParams& params, StreamView stream) {
  launch_activate(params, CudaLauncher(stream));
}
void add_bias(const AddBiasParams& params, StreamView stream) {
  launch_add_bias(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
