// Host code that reads rows and slices between two kernels, for selections that are not the
// kernel's. It uses the processor's bodies, so its numbers equal the kernels'.
#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace fasa {

// A whole key or value of a row, of `count` dimensions, to f32, exactly.
using ExpandRow = void (*)(const void* in, int64_t count, float* out);
ExpandRow expand_row(RowDType dtype);

// Scores of positions [first, end) of one sequence and KV head on the slices, computed as select
// does with `params`: query head i of the group at scores[i][position - first]; a null scores[i] is
// skipped.
void score_slices(const SelectParams& params, int sequence, int kv_head, int first, int end,
                  float* const* scores);

}  // namespace fasa
