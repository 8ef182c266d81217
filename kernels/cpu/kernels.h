// The CPU's kernels: SIMD bodies chosen once per process by the processor (target.h), parallel in
// the caller's oneTBB arena. Each returns the work that it did; the emulated device's launchers
// run the same functions and charge that work to its clock.
#pragma once

#include "kernels/params.h"
#include "kernels/table.h"

namespace fasa::cpu {

KernelWork append(const AppendParams& params);
KernelWork write_back(const WriteBackParams& params);
KernelWork restore(const RestoreParams& params);
KernelWork select(const SelectParams& params);
KernelWork resolve(const ResolveParams& params);
KernelWork speculate(const SpeculateParams& params);
KernelWork gather(const GatherParams& params);
KernelWork attend(const AttendParams& params);
KernelWork prefill(const PrefillParams& params);
KernelWork read_rows(const ReadRowsParams& params);

// Launchers that run on return, in the calling thread's arena.
const KernelTable& kernels();

}  // namespace fasa::cpu
