// Defines the launchers: each .cu file instantiates those of the bodies that it includes.
#pragma once

#include "kernels/cuda/cuda_launcher.cuh"
#include "kernels/cuda/kernels.h"

namespace fasa::cuda {

template <typename Params>
void enqueue(const Params& params, StreamView stream) {
  start(params, CudaLauncher(stream));
}

}  // namespace fasa::cuda
