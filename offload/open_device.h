// Opens devices by name.
#pragma once

#include <memory>
#include <string_view>

#include "offload/device.h"
#include "offload/device_options.h"

namespace fasa {

struct CudaPlatform;

// Throws UsageError for an unknown name (and lists the allowed ones) and for impossible options,
// DeviceError, with advice, for a GPU that cannot be used. `auto` opens cuda:0 or, if that fails,
// cpu, with a notice in builds with CUDA.
std::unique_ptr<Device> open_device(const DeviceOptions& options);
// The same with another CUDA runtime than this build's.
std::unique_ptr<Device> open_device(const DeviceOptions& options, const CudaPlatform& platform);

// cuda:0 as `auto` opens it, whatever the options name. Throws the reason for which `auto` opens
// the cpu instead.
std::unique_ptr<Device> open_auto_gpu(DeviceOptions options, const CudaPlatform& platform);

// Wraps a caller's stream: on a CUDA device a cudaStream_t, not null, which outlives the result and
// is not destroyed with it. The cpu device has none: pass null. Throws UsageError for anything
// else.
Stream adopt_stream(Device& device, void* native, std::string_view name);

}  // namespace fasa
