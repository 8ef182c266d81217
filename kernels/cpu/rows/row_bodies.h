// Chooses the bodies that read rows by instruction set, and runs attention with a given choice:
// tests run every supported target in one process.
#pragma once

#include "kernels/cpu/rows/row_body_types.h"
#include "kernels/params.h"
#include "kernels/target.h"

namespace fasa::cpu {

const RowBodies& row_bodies(Target target);

KernelWork attend_on(Target target, const AttendParams& params);
KernelWork prefill_with(const RowBodies& bodies, const PrefillParams& params);

}  // namespace fasa::cpu
