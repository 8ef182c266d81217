// Rows and slices read by host code between two kernels: for selections that are not the kernel's,
// on the processor's bodies, so that numbers are the kernels' own.
#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace fasa {

// A whole key or value of a row, of `count` dimensions, to f32, exactly.
using ExpandRow = void (*)(const void* in, int64_t count, float* out);
ExpandRow expand_row(RowDType dtype);

// Scores of positions [first, end) of one sequence and KV head on the slices, as `params` has
// select score them: of query head i of the group at scores[i][position - first]; null: not wanted.
void score_slices(const SelectParams& params, int sequence, int kv_head, int first, int end,
                  float* const* scores);

}  // namespace fasa
