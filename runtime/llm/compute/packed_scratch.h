// Scratch of device kernels that multiply packed weights: decode reorders its inputs there, prefill
// unpacks a slab of columns at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/model/packed_linear.h"
#include "kernels/packed_params.h"

namespace fasa {

// Maximum bytes of a slab: a few waves of a product's tiles, an eighth of an 8 B model's layer.
inline constexpr int64_t kSlabBytes = int64_t{32} << 20;

// The weights in the form that kernels read.
inline PackedWeights packed_weights(const PackedLinear& linear, const std::byte* panels,
                                    const int32_t* order) {
  return {.format = linear.format(),
          .panel = linear.panel(),
          .inputs = linear.inputs(),
          .order = order,
          .panels = panels};
}

// Columns unpacked at once: whole tiles of a product, at most all columns.
inline int64_t slab_columns(const PackedLinear& linear) {
  constexpr int64_t kTile = 128;
  const int64_t column_bytes = linear.inputs() * dtype_bytes(linear.dtype());
  const int64_t room = std::max<int64_t>(kTile, kSlabBytes / column_bytes / kTile * kTile);
  return std::min(room, linear.outputs());
}

// How many of `count` such matrices fit a slab whole.
inline int64_t slab_matrices(const PackedLinear& linear, int64_t count) {
  const int64_t bytes = linear.outputs() * linear.inputs() * dtype_bytes(linear.dtype());
  return std::clamp<int64_t>(kSlabBytes / bytes, 1, count);
}

// Scratch bytes for one of `count` matrices that are multiplied together.
inline size_t packed_scratch_bytes(const PackedLinear& linear, int64_t count = 1) {
  // Only whether there is an order matters here, not its contents.
  const auto* const order = linear.order().empty() ? nullptr : linear.order().data();
  const int64_t rearranged =
      ProjectPackedParams::scratch_bytes(packed_weights(linear, nullptr, order), linear.dtype());
  const int64_t slab = slab_columns(linear) * linear.inputs() * dtype_bytes(linear.dtype());
  return static_cast<size_t>(std::max(rearranged, slab * slab_matrices(linear, count)));
}

}  // namespace fasa
