#include "offload/cuda/gpu_traits.h"

#include "kernels/cuda/select_scratch.h"
#include "kernels/model_params.h"
#include "kernels/select_plan.h"

namespace fasa {

DeviceTraits gpu_traits() {
  return {.model_calls = true,
          .times_kernel_bytes = false,
          .low_bit_by_page = true,
          .select_scratch =
              [](const CacheLayout& layout, int count, int selected_capacity) {
                const auto scratch = cuda::SelectScratch::of(layout, count, selected_capacity);
                return static_cast<uint64_t>(scratch.bytes());
              },
          .project_scratch = [] { return kCublasScratchBytes; },
          .scores = cuda_holds_queries};
}

}  // namespace fasa
