// The calls of the CUDA runtime that the device makes, as a table that can be another one: the
// device is built and tested everywhere, against a fake runtime on the host; only the real table
// (cuda_platform.cc) needs the toolkit. Handles are opaque (cudaStream_t, cudaEvent_t,
// cudaMemPool_t), statuses the runtime's own numbers, results come through pointers as in the
// runtime, and are untouched where a call fails.
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

// Those that the device tells apart.
namespace cuda_status {
inline constexpr CudaStatus kSuccess = 0;
inline constexpr CudaStatus kInvalidValue = 1;
inline constexpr CudaStatus kOutOfMemory = 2;
inline constexpr CudaStatus kInsufficientDriver = 35;  // also where there is no driver at all
inline constexpr CudaStatus kDevicesUnavailable = 46;  // all are used exclusively
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

// What the driver says of one GPU.
struct CudaGpu {
  std::string name;
  std::string pci_bus_id;  // "0000:3b:00.0"
  int major = 0;           // compute capability
  int minor = 0;
  uint64_t memory_bytes = 0;
  double memory_bandwidth = 0;  // bytes per second by clock and bus, 0 = not told
  bool memory_pools = false;
  // Kernels reach registered host memory at the address that the host uses.
  bool shares_host_addresses = false;
  bool prohibited = false;  // the compute mode forbids contexts
};

// Where an address lies, as the driver knows it.
struct CudaLocation {
  enum class Kind : uint8_t {
    kUnknown,  // nowhere that kernels reach: the process's own memory, mostly
    kPinned,   // host memory that kernels reach at the same address
    kManaged,  // both sides reach it
    kDevice,
  };
  Kind kind = Kind::kUnknown;
  int gpu = 0;  // of kDevice
};

class CudaCalls {
 public:
  virtual ~CudaCalls() = default;

  virtual std::string name_of(CudaStatus status) = 0;  // "cudaErrorMemoryAllocation"
  virtual std::string text_of(CudaStatus status) = 0;  // "out of memory"
  virtual CudaStatus take_last_error() = 0;            // of this thread; success from then on

  // Versions as 1000 x major + 10 x minor; a driver of 0: there is none.
  virtual CudaStatus versions(int* driver, int* runtime) = 0;
  virtual CudaStatus count_gpus(int* count) = 0;
  virtual CudaStatus describe(int gpu, CudaGpu* description) = 0;
  virtual CudaStatus current_gpu(int* gpu) = 0;  // of the calling thread
  virtual CudaStatus use_gpu(int gpu) = 0;

  virtual CudaStatus free_memory(uint64_t* free_bytes, uint64_t* total_bytes) = 0;
  // A pool that keeps what is given back to it, until it is trimmed.
  virtual CudaStatus create_pool(int gpu, void** pool) = 0;
  virtual CudaStatus destroy_pool(void* pool) = 0;
  virtual CudaStatus trim_pool(void* pool) = 0;
  // In stream order; `pool` null: cudaMalloc and cudaFree, for GPUs without pools.
  virtual CudaStatus allocate(void** data, size_t bytes, void* pool, void* stream) = 0;
  virtual CudaStatus free(void* data, void* pool, void* stream) = 0;
  // Pins host memory and maps it for every GPU.
  virtual CudaStatus register_host(void* data, size_t bytes) = 0;
  virtual CudaStatus unregister_host(void* data) = 0;
  // Any address; enqueues nothing, and may be asked for within a capture.
  virtual CudaStatus locate(const void* data, CudaLocation* location) = 0;

  virtual CudaStatus create_stream(void** stream, StreamPriority priority) = 0;
  virtual CudaStatus destroy_stream(void* stream) = 0;
  virtual CudaStatus synchronize_stream(void* stream) = 0;
  // Whose a stream is that somebody else made. kNotSupported where the toolkit is older than 12.8;
  // what was destroyed fails as far as the driver notices.
  virtual CudaStatus gpu_of_stream(void* stream, int* gpu) = 0;
  virtual CudaStatus create_event(void** event) = 0;  // with times
  virtual CudaStatus destroy_event(void* event) = 0;
  virtual CudaStatus record(void* event, void* stream) = 0;
  virtual CudaStatus wait(void* stream, void* event) = 0;
  virtual CudaStatus query_event(void* event) = 0;  // kNotReady: not yet
  virtual CudaStatus synchronize_event(void* event) = 0;
  virtual CudaStatus elapsed(float* milliseconds, void* from, void* to) = 0;

  virtual CudaStatus copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                          void* stream) = 0;
  // All ranges in one call; kNotSupported where toolkit or driver are older than 12.8.
  virtual CudaStatus copy_all(std::span<const CopyRange> ranges, void* stream) = 0;
  virtual CudaStatus fill(void* destination, int byte, size_t bytes, void* stream) = 0;
  virtual CudaStatus run_on_host(void* stream, void (*function)(void*), void* argument) = 0;

  // Graphs (cudaGraph_t, cudaGraphExec_t). While a stream is captured, other threads may do what
  // they like. A graph that is null is left where a capture failed.
  virtual CudaStatus begin_capture(void* stream) = 0;
  virtual CudaStatus end_capture(void* stream, void** graph) = 0;
  virtual CudaStatus destroy_graph(void* graph) = 0;
  // With its memory on the GPU, on `stream`.
  virtual CudaStatus instantiate_graph(void** instance, void* graph, void* stream) = 0;
  virtual CudaStatus destroy_graph_instance(void* instance) = 0;
  virtual CudaStatus launch_graph(void* instance, void* stream) = 0;
};

// What a build brings for CUDA.
struct CudaPlatform {
  CudaCalls* calls = nullptr;  // null: built without CUDA
  // Starts a call's kernels on a cudaStream_t. Throws what it cannot launch, or leaves it as the
  // thread's last error.
  std::function<void(const KernelCall& call, void* stream)> launch;
  uint64_t (*project_scratch)() = nullptr;  // see DeviceTraits
  const char* machine_code = "";  // compute capabilities x 10 with code of their own: "75,80"
  const char* ptx = "";           // and those that newer GPUs can translate: "90"
};
CudaPlatform cuda_platform();

}  // namespace fasa
