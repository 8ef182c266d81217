// What a kernel call takes on the emulated device besides moving its bytes.
#pragma once

#include "kernels/calls.h"
#include "offload/kernel_costs.h"

namespace fasa {

struct CallSeconds {
  double fixed = 0;
  double byte = 0;  // in device memory, at least
  double read = 1;  // share of these bytes that is moved: pages are read once for several tokens
  double operation = 0;  // of a product, at least
};

// Reads the call's descriptors: only while the call may run.
CallSeconds call_seconds(const KernelCosts& costs, const KernelCall& call);

}  // namespace fasa
