// Slices, one value at a time: the oracle of the SIMD packers and scorers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/slice_format.h"
#include "runtime/base/dtype.h"

namespace fasa::reference {

// Same as those of kernels/slice_pack.h, with the same bytes. write_tail_token takes the tail's
// format, SliceFormat::tail(): codes have more padding dimensions.
void write_tail_token(const SliceFormat& format, const int16_t* slice_dims, DType key_dtype,
                      const void* key, int slot, std::byte* tail_page);
void seal_page(const SliceFormat& format, const std::byte* tail_page, std::byte* slice_page,
               float* base);

// The value that a slice page holds for one dimension and token; `base` is unused by f32 and bf16.
float slice_value(const SliceFormat& format, const std::byte* page, float base, int dim, int token);

}  // namespace fasa::reference
