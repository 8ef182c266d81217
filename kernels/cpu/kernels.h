// The CPU kernels: SIMD bodies chosen once per process by the processor (target.h), parallel in the
// caller's oneTBB arena. Each returns the work that it did; the emulated device runs the same
// functions and charges the work to its clock.
#pragma once

#include "kernels/params.h"

namespace fasa::cpu {

// Specialised in each kernel's source file (append.cc, ...): a kernel without a body does not link.
template <typename Params>
KernelWork run(const Params& params);

}  // namespace fasa::cpu
