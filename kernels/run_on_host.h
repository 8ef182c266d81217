// The processor's kernels, for devices emulated on the host and for code that needs a kernel's
// result without a device.
#pragma once

#include "kernels/calls.h"

namespace fasa {

// Runs in the caller's oneTBB arena; complete on return. Throws UsageError for a model's own work
// (ModelCalls), which the host runs by separate calls (runtime/llm/compute/host_sink.h).
KernelWork run_on_host(const KernelCall& call);

}  // namespace fasa
