#include "offload/cuda/gpu_traits.h"

#include "kernels/cuda/select/select_scratch.h"
#include "kernels/model_params.h"
#include "kernels/select_plan.h"

namespace fasa {
namespace {

template <int kCapability>
bool holds_queries(int group, int slice_dims) {
  return cuda_holds_queries(group, slice_dims, kCapability);
}

}  // namespace

DeviceTraits gpu_traits(int compute_capability) {
  return {.model_calls = true,
          .times_kernel_bytes = false,
          .low_bit_by_page = true,
          .page_queries = 8,
          .select_scratch =
              [](const CacheLayout& layout, int count, int ranked, int pages) {
                const auto scratch = cuda::SelectScratch::of(layout, count, ranked, pages);
                return static_cast<uint64_t>(scratch.bytes());
              },
          .project_scratch = [] { return kCublasScratchBytes; },
          .scores = compute_capability < 80 ? holds_queries<75> : holds_queries<80>};
}

}  // namespace fasa
