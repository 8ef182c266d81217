// Conversions of whole vectors between element types, the same bits as load_element and
// store_element of runtime/base/dtype.h.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

namespace fasa::cpu {

// `count` elements of `in` from `index`, rounded to `out_dtype` at `out`.
void convert_elements(DType in_dtype, const void* in, int64_t index, int count, DType out_dtype,
                      void* out);

// out[index + i] = values[i] / divisor, rounded.
void store_quotients(const float* values, float divisor, int count, DType out_dtype, void* out,
                     int64_t index);

}  // namespace fasa::cpu
