// A stream's device and native handle: all that kernels know of streams.
#pragma once

#include <cstdint>

namespace fasa {

enum class DeviceKind : uint8_t { kCpu, kEmulated, kCuda };

// Non-owning. `native`: on the cpu device (work is done on return) an object that knows the
// device's threads, or nullptr to use the caller's thread; the device's stream object on the
// emulated device and on CUDA (CudaDevice::adopt_stream makes one for an engine's cudaStream_t).
// The CUDA launchers (kernels/cuda) take the cudaStream_t itself.
struct StreamView {
  DeviceKind kind = DeviceKind::kCpu;
  void* native = nullptr;
};

}  // namespace fasa
