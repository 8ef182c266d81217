#include "kernels/cuda/select_inl.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

void select(const SelectParams& params, StreamView stream) {
  launch_select(params, CudaLauncher(stream));
}

uint64_t select_scratch(const CacheLayout& layout, int count, int set_capacity) {
  return static_cast<uint64_t>(SelectScratch::of(layout, count, set_capacity).bytes());
}

}  // namespace fasa::cuda
