// Host code that reads rows between two kernels, for selections that are not the kernel's. It uses
// the processor's bodies, so its numbers equal the kernels'.
#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace fasa {

// A whole key or value of a row, of `count` dimensions, to f32, exactly.
using ExpandRow = void (*)(const void* in, int64_t count, float* out);
ExpandRow expand_row(RowDType dtype);

}  // namespace fasa
