// What kernel calls take on a GPU besides moving their bytes, measured when the device is opened.
#pragma once

#include "offload/cuda/cuda_shared.h"
#include "offload/kernel_costs.h"

namespace fasa {

// Times small selects and resolves in graphs on `stream`, in temporary memory of `pool` (null:
// none), and with them shows that kernels run at all. A cost that is not within ten times of its
// default keeps the default. Throws DeviceError if a kernel fails.
KernelCosts measure_kernels(CudaShared& shared, void* pool, void* stream);

}  // namespace fasa
