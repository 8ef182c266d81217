// Which device a stream belongs to, and its native handle: all that kernels know of streams.
#pragma once

#include <cstdint>

namespace fasa {

enum class DeviceKind : uint8_t { kCpu, kEmulated, kCuda };

// Non-owning. `native`: on the cpu device (work is done on return) what knows the device's threads,
// or nullptr for the caller's own; the device's stream object on the emulated one and on CUDA
// (CudaDevice::adopt_stream makes one for an engine's cudaStream_t). The CUDA launchers themselves
// (kernels/cuda) take the cudaStream_t.
struct StreamView {
  DeviceKind kind = DeviceKind::kCpu;
  void* native = nullptr;
};

}  // namespace fasa
