#include "tests/gpu/scores.h"

#include "kernels/cuda/cuda_launcher.cuh"
#include "tests/simt/scores_kernel.h"

namespace fasa {

void enqueue_scores(const SelectParams& params, int sequence, int kv_head, float* raw) {
  const cuda::CudaLauncher launch(StreamView{DeviceKind::kCuda, nullptr});
  const cuda::ScorerLayout layout =
      cuda::SelectKernel::scorer_layout(params, launch.compute_capability());
  launch(cuda::ScoresKernel{{params, {}, layout, 1}, sequence, kv_head, raw},
         {.shared_bytes = layout.bytes()});
}

}  // namespace fasa
