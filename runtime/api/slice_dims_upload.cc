#include "runtime/api/slice_dims_upload.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace fasa {

void check_slice_dims(const std::vector<int16_t>& slice_dims, const StepSettings& settings,
                      const Geometry& geometry) {
  const CacheLayout& layout = settings.layout;
  if (layout.slice.dims == 0) return;
  const auto expected = static_cast<size_t>(settings.layer_count()) *
                        static_cast<size_t>(layout.kv_heads * layout.slice.dims);
  if (slice_dims.size() != expected) {
    throw UsageError(fmt::format("slice_dims has {} entries; layers x kv_heads x dims is {}",
                                 slice_dims.size(), expected));
  }
  for (const int16_t dim : slice_dims) {
    if (dim >= 0 && dim < geometry.key_dim) continue;
    throw UsageError(
        fmt::format("slice_dims names dimension {}; a key has 0 to {}", dim, geometry.key_dim - 1));
  }
}

Buffer upload_slice_dims(Device& device, const std::vector<int16_t>& slice_dims,
                         const StepSettings& settings, StreamView stream) {
  const CacheLayout& layout = settings.layout;
  const auto of_layer = static_cast<ptrdiff_t>(layout.kv_heads * layout.slice.dims);
  std::vector<int16_t> dims;
  for (int layer = 0; layer < settings.layer_count() && of_layer > 0; ++layer) {
    if (settings.layer(layer).in_window_rows) continue;
    const auto first = slice_dims.begin() + layer * of_layer;
    dims.insert(dims.end(), first, first + of_layer);
  }
  const size_t bytes = dims.size() * sizeof(int16_t);
  Buffer memory = device.allocate(MemorySpace::kDevice, bytes, "slice dimensions");
  device.copy(memory.data(), dims.data(), bytes, CopyKind::kHostToDevice, stream);
  device.synchronize(stream);
  return memory;
}

}  // namespace fasa
