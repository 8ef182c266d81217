// The GPUs of this machine, as `fasa info` lists them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "offload/cuda/cuda_calls.h"
#include "offload/device_options.h"
#include "offload/device_traits.h"

namespace fasa {

struct GpuEntry {
  std::string name;  // "cuda:0"
  CudaGpu gpu;
  std::string obstacle;              // why it cannot be used; "" if it can
  std::optional<DeviceRates> rates;  // measured, of the GPU that `auto` opens
};

struct GpuList {
  std::string obstacle;  // why device `auto` uses the cpu; "" if it uses cuda:0
  std::vector<GpuEntry> gpus;
};

// Opens cuda:0 for a moment, as device `auto` does. Throws UsageError for options that are wrong
// on any device.
GpuList list_gpus(const DeviceOptions& options);
// The same with another CUDA runtime than this build's.
GpuList list_gpus(const DeviceOptions& options, const CudaPlatform& platform);

}  // namespace fasa
