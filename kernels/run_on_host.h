// The kernels of the processor, for devices emulated on the host and for code that needs a kernel's
// result without a device.
#pragma once

#include "kernels/calls.h"

namespace fasa {

// In the caller's oneTBB arena, done on return. Throws UsageError for a model's own work
// (ModelCalls), which host work does by calls of its own (runtime/llm/host_sink.h).
KernelWork run_on_host(const KernelCall& call);

}  // namespace fasa
