// Opens devices by name.
#pragma once

#include <memory>
#include <string_view>

#include "offload/device.h"
#include "offload/device_options.h"

namespace fasa {

struct CudaPlatform;

// Throws UsageError for an unknown name (listing what there is) and for impossible options,
// DeviceError for a GPU that can't be used, with what to do. `auto` takes cuda:0 where that can be
// opened, else cpu, with a notice why in builds that have CUDA.
std::unique_ptr<Device> open_device(const DeviceOptions& options);
// With another CUDA runtime than this build's.
std::unique_ptr<Device> open_device(const DeviceOptions& options, const CudaPlatform& platform);

// A caller's own stream for our calls: on a CUDA device a cudaStream_t, not null, which outlives what
// this returns and is not destroyed with it; on the cpu device there is none (null). Throws
// UsageError for anything else.
Stream adopt_stream(Device& device, void* native, std::string_view name);

}  // namespace fasa
