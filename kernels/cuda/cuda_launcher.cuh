// Starts kernels (simt.h) on a CUDA stream.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/simt.h"
#include "runtime/base/stream_view.h"

namespace fasa::cuda {

// Kernel::kResidentBlocks: blocks per multiprocessor, which limits the registers of a thread.
template <typename Kernel>
constexpr int resident_blocks() {
  if constexpr (requires { Kernel::kResidentBlocks; }) {
    return Kernel::kResidentBlocks;
  } else {
    return 1;
  }
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, resident_blocks<Kernel>())
    run_kernel(const __grid_constant__ Kernel kernel) {
  kernel();
}

class CudaLauncher {
 public:
  explicit CudaLauncher(StreamView stream) : stream_(static_cast<cudaStream_t>(stream.native)) {}

  template <typename Kernel>
  void operator()(const Kernel& kernel, const simt::Grid& grid) const {
    if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return;
    allow_shared<Kernel>(grid.shared_bytes);
    const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                      static_cast<unsigned>(grid.z));
    run_kernel<Kernel>
        <<<blocks, Kernel::kThreads, static_cast<size_t>(grid.shared_bytes), stream_>>>(kernel);
    check(cudaGetLastError(), Kernel::kName);
  }
  int multiprocessors() const { return attribute(cudaDevAttrMultiProcessorCount); }
  int compute_capability() const {  // x 10
    return attribute(cudaDevAttrComputeCapabilityMajor) * 10 +
           attribute(cudaDevAttrComputeCapabilityMinor);
  }

 private:
  static int attribute(cudaDeviceAttr wanted) {
    int device = 0;
    int value = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&value, wanted, device), "cudaDeviceGetAttribute");
    return value;
  }
  // Shared memory above 48 KiB has to be requested, once per device and size.
  template <typename Kernel>
  static void allow_shared(int64_t bytes) {
    constexpr int64_t kGiven = 48 << 10;
    constexpr int kDevices = 64;
    static std::atomic<int64_t> allowed[kDevices];
    static std::mutex raising;
    if (bytes <= kGiven) return;
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    std::atomic<int64_t>& most = allowed[device % kDevices];
    if (most.load(std::memory_order_acquire) >= bytes) return;
    // CUDA keeps the last value set, not the largest: the lock keeps another thread from lowering
    // it.
    const std::lock_guard lock(raising);
    if (most.load(std::memory_order_relaxed) >= bytes) return;
    check(cudaFuncSetAttribute(run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes)),
          "cudaFuncSetAttribute");
    most.store(bytes, std::memory_order_release);
  }

  cudaStream_t stream_;
};

}  // namespace fasa::cuda
