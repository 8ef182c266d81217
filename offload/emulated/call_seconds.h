// What a kernel call takes on the emulated device besides its bytes.
#pragma once

#include "kernels/calls.h"
#include "offload/kernel_costs.h"

namespace fasa {

// Reads the call's descriptors: only while the call may run.
double call_seconds(const KernelCosts& costs, const KernelCall& call);

}  // namespace fasa
