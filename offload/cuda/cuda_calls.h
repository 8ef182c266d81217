// The CUDA runtime calls that the device makes, as a replaceable table. The device is built
// everywhere and tested against a fake runtime on the host; only the real table (cuda_platform.cc)
// needs the toolkit. Handles are opaque (cudaStream_t, cudaEvent_t, cudaMemPool_t); statuses are
// the runtime's numbers. Results are returned through pointers, as in the runtime, and stay
// unchanged if a call fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "kernels/calls.h"
#include "offload/device.h"

namespace fasa {

using CudaStatus = int;  // cudaError_t

// The statuses that the device distinguishes.
namespace cuda_status {
inline constexpr CudaStatus kSuccess = 0;
inline constexpr CudaStatus kInvalidValue = 1;
inline constexpr CudaStatus kOutOfMemory = 2;
inline constexpr CudaStatus kInsufficientDriver = 35;  // also without any driver
inline constexpr CudaStatus kDevicesUnavailable = 46;  // other processes use all GPUs exclusively
inline constexpr CudaStatus kNoDevice = 100;
inline constexpr CudaStatus kNoKernelImage = 209;
inline constexpr CudaStatus kInvalidHandle = 400;
inline constexpr CudaStatus kNotReady = 600;
inline constexpr CudaStatus kIllegalAddress = 700;
inline constexpr CudaStatus kOperatingSystem = 304;
inline constexpr CudaStatus kHostMemoryAlreadyRegistered = 712;
inline constexpr CudaStatus kNotPermitted = 800;
inline constexpr CudaStatus kNotSupported = 801;
inline constexpr CudaStatus kSystemNotReady = 802;
inline constexpr CudaStatus kSystemDriverMismatch = 803;
inline constexpr CudaStatus kCaptureUnsupported = 900;
inline constexpr CudaStatus kCaptureInvalidated = 901;
inline constexpr CudaStatus kCaptureUnmatched = 903;
inline constexpr CudaStatus kCaptureUnjoined = 904;
inline constexpr CudaStatus kCaptureIsolation = 905;
inline constexpr CudaStatus kCaptureImplicit = 906;
inline constexpr CudaStatus kCapturedEvent = 907;
inline constexpr CudaStatus kUnknown = 999;
}  // namespace cuda_status

// The driver's description of one GPU.
struct CudaGpu {
  std::string name;
  std::string pci_bus_id;  // "0000:3b:00.0"
  int major = 0;           // compute capability
  int minor = 0;
  uint64_t memory_bytes = 0;
  double memory_bandwidth = 0;  // bytes per second by clock and bus; 0: unknown
  double cycles = 0;            // multiprocessors * clock, per second; 0: unknown
  bool memory_pools = false;
  // Kernels access registered host memory at the host's address.
  bool shares_host_addresses = false;
  bool prohibited = false;  // the compute mode forbids contexts
};

// The location of an address, as the driver reports it.
struct CudaLocation {
  enum class Kind : uint8_t {
    kUnknown,  // not accessible to kernels: usually pageable host memory
    kPinned,   // host memory that kernels access at the same address
    kManaged,  // accessible to both sides
    kDevice,
  };
  Kind kind = Kind::kUnknown;
  int gpu = 0;  // for kDevice
};

class CudaCalls {
 public:
  virtual ~CudaCalls() = default;

  virtual std::string name_of(CudaStatus status) = 0;  // "cudaErrorMemoryAllocation"
  virtual std::string text_of(CudaStatus status) = 0;  // "out of memory"
  virtual CudaStatus take_last_error() = 0;            // this thread's; resets it to success

  // Versions as 1000 x major + 10 x minor. Driver 0: no driver installed.
  virtual CudaStatus versions(int* driver, int* runtime) = 0;
  virtual CudaStatus count_gpus(int* count) = 0;
  virtual CudaStatus describe(int gpu, CudaGpu* description) = 0;
  virtual CudaStatus current_gpu(int* gpu) = 0;  // of the calling thread
  virtual CudaStatus use_gpu(int gpu) = 0;

  virtual CudaStatus free_memory(uint64_t* free_bytes, uint64_t* total_bytes) = 0;
  // Creates a pool that retains freed memory until it is trimmed.
  virtual CudaStatus create_pool(int gpu, void** pool) = 0;
  virtual CudaStatus destroy_pool(void* pool) = 0;
  virtual CudaStatus trim_pool(void* pool) = 0;
  // Stream-ordered. `pool` null: uses cudaMalloc and cudaFree, for GPUs without pools.
  virtual CudaStatus allocate(void** data, size_t bytes, void* pool, void* stream) = 0;
  virtual CudaStatus free(void* data, void* pool, void* stream) = 0;
  // Pins host memory and maps it for every GPU.
  virtual CudaStatus register_host(void* data, size_t bytes) = 0;
  virtual CudaStatus unregister_host(void* data) = 0;
  // Accepts any address. Enqueues nothing; allowed during a capture.
  virtual CudaStatus locate(const void* data, CudaLocation* location) = 0;

  virtual CudaStatus create_stream(void** stream, StreamPriority priority) = 0;
  virtual CudaStatus destroy_stream(void* stream) = 0;
  virtual CudaStatus synchronize_stream(void* stream) = 0;
  // The GPU of a foreign stream. kNotSupported with toolkits older than 12.8; fails for a destroyed
  // stream as far as the driver detects that.
  virtual CudaStatus gpu_of_stream(void* stream, int* gpu) = 0;
  virtual CudaStatus create_event(void** event) = 0;  // with timing
  virtual CudaStatus destroy_event(void* event) = 0;
  virtual CudaStatus record(void* event, void* stream) = 0;
  virtual CudaStatus wait(void* stream, void* event) = 0;
  virtual CudaStatus query_event(void* event) = 0;  // kNotReady: pending
  virtual CudaStatus synchronize_event(void* event) = 0;
  virtual CudaStatus elapsed(float* milliseconds, void* from, void* to) = 0;

  virtual CudaStatus copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                          void* stream) = 0;
  // Copies all ranges in one call; kNotSupported if toolkit or driver are older than 12.8.
  virtual CudaStatus copy_all(std::span<const CopyRange> ranges, void* stream) = 0;
  virtual CudaStatus fill(void* destination, int byte, size_t bytes, void* stream) = 0;
  virtual CudaStatus run_on_host(void* stream, void (*function)(void*), void* argument) = 0;

  // Graphs (cudaGraph_t, cudaGraphExec_t). Other threads may use CUDA freely during a capture. A
  // failed capture leaves a null graph.
  virtual CudaStatus begin_capture(void* stream) = 0;
  virtual CudaStatus end_capture(void* stream, void** graph) = 0;
  virtual CudaStatus destroy_graph(void* graph) = 0;
  // Places the graph's memory on the GPU, on `stream`.
  virtual CudaStatus instantiate_graph(void** instance, void* graph, void* stream) = 0;
  virtual CudaStatus destroy_graph_instance(void* instance) = 0;
  virtual CudaStatus launch_graph(void* instance, void* stream) = 0;
};

// The CUDA parts of a build.
struct CudaPlatform {
  CudaCalls* calls = nullptr;  // null: built without CUDA
  // Launches a call's kernels on a cudaStream_t. Throws if it cannot launch, or leaves the error as
  // the thread's last error.
  std::function<void(const KernelCall& call, void* stream)> launch;
  uint64_t (*project_scratch)() = nullptr;  // see DeviceTraits
  bool times_kernels = true;                // when a device is opened (cuda_kernel_costs.h)
  const char* machine_code = "";  // compute capabilities x 10 with code of their own: "75,80"
  const char* ptx = "";           // and those that newer GPUs can translate: "90"
};
CudaPlatform cuda_platform();

}  // namespace fasa
