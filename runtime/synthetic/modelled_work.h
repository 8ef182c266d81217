// The bytes that each kernel would read, write and move, computed from its parameters, for devices
// that charge work without doing it. Reads descriptors, set sizes and fetch counts in device
// memory, so it must run as work of the stream.
#pragma once

#include "kernels/params.h"

namespace fasa {

KernelWork modelled_work(const AppendParams& params);
KernelWork modelled_work(const WriteBackParams& params);
KernelWork modelled_work(const RestoreParams& params);
KernelWork modelled_work(const SelectParams& params);
KernelWork modelled_work(const FetchParams& params);
KernelWork modelled_work(const GatherParams& params);
KernelWork modelled_work(const AttendParams& params);
KernelWork modelled_work(const PrefillParams& params);

}  // namespace fasa
