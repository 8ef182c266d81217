// Which prefills tensor cores take (prefill_tile_inl.h), and their launches.
#pragma once

#include "kernels/cuda/prefill_tile_inl.h"

namespace fasa::cuda {

constexpr bool has_prefill_tiles(int dim) {
  return dim == 64 || dim == 80 || dim == 96 || dim == 128 || dim == 256;
}

template <RowDType::Kind kRow, int kDim, typename Launcher>
void launch_prefill_tiles_of(const PrefillParams& params, const Launcher& launch) {
  const CacheLayout& layout = params.step.layout;
  const auto run = [&](auto kernel) {
    using Kernel = decltype(kernel);
    kernel.params = params;
    kernel.tokens = Kernel::kRows / layout.gqa_group;
    const auto tokens = static_cast<int>(params.q.tokens);
    launch(kernel, {.x = (tokens + kernel.tokens - 1) / kernel.tokens,
                    .y = layout.kv_heads,
                    .z = params.step.count,
                    .shared_bytes = Kernel::kSharedBytes});
  };
  constexpr DType kElement = PrefillTileKernel<kRow, kDim, false>::kElement;
  if (params.q.dtype == kElement && params.out.dtype == kElement) {
    run(PrefillTileKernel<kRow, kDim, false>{});
  } else {
    run(PrefillTileKernel<kRow, kDim, true>{});
  }
}

template <RowDType::Kind kRow, typename Launcher>
void launch_prefill_tiles_of(const PrefillParams& params, const Launcher& launch) {
  switch (params.step.layout.row.key_dim) {
    case 64:
      return launch_prefill_tiles_of<kRow, 64>(params, launch);
    case 80:
      return launch_prefill_tiles_of<kRow, 80>(params, launch);
    case 96:
      return launch_prefill_tiles_of<kRow, 96>(params, launch);
    case 128:
      return launch_prefill_tiles_of<kRow, 128>(params, launch);
    default:
      return launch_prefill_tiles_of<kRow, 256>(params, launch);
  }
}

// Depends only on dtypes, widths and GPU, never on the step's tokens: the other kernel gives other
// bits.
inline bool takes_prefill_tiles(const CacheLayout& layout, int compute_capability) {
  constexpr int kMaxGroup = 64;
  const RowFormat& row = layout.row;
  if (row.key_dim != row.value_dim || layout.gqa_group > kMaxGroup) return false;
  if (!has_prefill_tiles(row.key_dim) || row.dtype == RowDType::kF32) return false;
  return row.dtype == RowDType::kF16 || compute_capability >= 80;
}

// Returns false if these kernels do not support the call.
template <typename Launcher>
bool launch_prefill_tiles(const PrefillParams& params, const Launcher& launch) {
  const CacheLayout& layout = params.step.layout;
  if (!takes_prefill_tiles(layout, launch.compute_capability())) return false;
  switch (layout.row.dtype) {
    case RowDType::kF16:
      return launch_prefill_tiles_of<RowDType::kF16>(params, launch), true;
    case RowDType::kBF16:
      return launch_prefill_tiles_of<RowDType::kBF16>(params, launch), true;
    case RowDType::kInt8:
      return launch_prefill_tiles_of<RowDType::kInt8>(params, launch), true;
    case RowDType::kF32:
      break;
  }
  return false;
}

}  // namespace fasa::cuda
