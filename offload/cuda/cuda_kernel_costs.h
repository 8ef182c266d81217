// What kernel calls take on a GPU besides moving their bytes, measured when the device is opened.
#pragma once

#include "offload/cuda/cuda_shared.h"
#include "offload/kernel_costs.h"

namespace fasa {

// Times small selects and resolves on `stream`, in temporary memory of `pool` (null: none). A cost
// that is not within ten times of its default keeps the default, as do all if the measurement
// fails. Throws DeviceError if the context is lost.
KernelCosts measure_kernels(CudaShared& shared, void* pool, void* stream);

}  // namespace fasa
