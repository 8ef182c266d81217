#include "runtime/doors/slice_dims_upload.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace fasa {

void check_slice_dims(const std::vector<int16_t>& slice_dims, const CacheLayout& layout,
                      const Geometry& geometry) {
  if (layout.slice.dims == 0) return;
  const auto expected = static_cast<size_t>(layout.heads() * layout.slice.dims);
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
                         const CacheLayout& layout, StreamView stream) {
  const auto bytes = static_cast<size_t>(layout.heads() * layout.slice.dims) * sizeof(int16_t);
  Buffer memory = device.allocate(MemorySpace::kDevice, bytes, "slice dimensions");
  device.copy(memory.data(), slice_dims.data(), bytes, CopyKind::kHostToDevice, stream);
  device.synchronize(stream);
  return memory;
}

}  // namespace fasa
