// The real CUDA runtime (12.4 or newer), in builds with FASA_CUDA. It is linked statically and
// loads the driver's library on the first call, so the program also starts on machines without a
// driver.
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/model/cublas_lt.h"
#include "offload/cuda/cuda_calls.h"

#ifndef FASA_CUDA_MACHINE_CODE
#error "FASA_CUDA_MACHINE_CODE must list the architectures of the kernels, such as \"75,80\""
#endif

namespace fasa {
namespace {

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }
cudaMemPool_t pool_of(void* pool) { return static_cast<cudaMemPool_t>(pool); }

cudaMemcpyKind kind_of(CopyKind kind) {
  switch (kind) {
    case CopyKind::kHostToDevice:
      return cudaMemcpyHostToDevice;
    case CopyKind::kDeviceToHost:
      return cudaMemcpyDeviceToHost;
    case CopyKind::kDeviceToDevice:
      return cudaMemcpyDeviceToDevice;
    case CopyKind::kHostToHost:
      break;
  }
  return cudaMemcpyHostToHost;
}

int attribute(int gpu, cudaDeviceAttr attribute) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, gpu) == cudaSuccess) return value;
  cudaGetLastError();  // would be taken for the next kernel's
  return 0;
}

class RuntimeCalls final : public CudaCalls {
 public:
  std::string name_of(CudaStatus status) override {
    return cudaGetErrorName(static_cast<cudaError_t>(status));
  }
  std::string text_of(CudaStatus status) override {
    return cudaGetErrorString(static_cast<cudaError_t>(status));
  }
  CudaStatus take_last_error() override { return cudaGetLastError(); }

  CudaStatus versions(int* driver, int* runtime) override {
    const cudaError_t status = cudaDriverGetVersion(driver);
    return status == cudaSuccess ? cudaRuntimeGetVersion(runtime) : status;
  }
  CudaStatus count_gpus(int* count) override { return cudaGetDeviceCount(count); }
  CudaStatus describe(int gpu, CudaGpu* description) override;
  CudaStatus current_gpu(int* gpu) override { return cudaGetDevice(gpu); }
  CudaStatus use_gpu(int gpu) override { return cudaSetDevice(gpu); }

  CudaStatus free_memory(uint64_t* free_bytes, uint64_t* total_bytes) override {
    size_t left = 0, all = 0;
    const cudaError_t status = cudaMemGetInfo(&left, &all);
    if (status != cudaSuccess) return status;
    *free_bytes = left;
    *total_bytes = all;
    return cudaSuccess;
  }
  CudaStatus create_pool(int gpu, void** pool) override;
  CudaStatus destroy_pool(void* pool) override { return cudaMemPoolDestroy(pool_of(pool)); }
  CudaStatus trim_pool(void* pool) override { return cudaMemPoolTrimTo(pool_of(pool), 0); }
  CudaStatus allocate(void** data, size_t bytes, void* pool, void* stream) override {
    return pool == nullptr ? cudaMalloc(data, bytes)
                           : cudaMallocFromPoolAsync(data, bytes, pool_of(pool), stream_of(stream));
  }
  CudaStatus free(void* data, void* pool, void* stream) override {
    return pool == nullptr ? cudaFree(data) : cudaFreeAsync(data, stream_of(stream));
  }
  CudaStatus register_host(void* data, size_t bytes) override {
    return cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  }
  CudaStatus unregister_host(void* data) override { return cudaHostUnregister(data); }
  CudaStatus locate(const void* data, CudaLocation* location) override;

  CudaStatus create_stream(void** stream, StreamPriority priority) override;
  CudaStatus destroy_stream(void* stream) override { return cudaStreamDestroy(stream_of(stream)); }
  CudaStatus synchronize_stream(void* stream) override {
    return cudaStreamSynchronize(stream_of(stream));
  }
  CudaStatus gpu_of_stream(void* stream, int* gpu) override {
#if CUDART_VERSION >= 12080
    return cudaStreamGetDevice(stream_of(stream), gpu);
#else
    static_cast<void>(stream);
    static_cast<void>(gpu);
    return cudaErrorNotSupported;
#endif
  }
  CudaStatus create_event(void** event) override {
    return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), cudaEventDefault);
  }
  CudaStatus destroy_event(void* event) override { return cudaEventDestroy(event_of(event)); }
  CudaStatus record(void* event, void* stream) override {
    return cudaEventRecord(event_of(event), stream_of(stream));
  }
  CudaStatus wait(void* stream, void* event) override {
    return cudaStreamWaitEvent(stream_of(stream), event_of(event), 0);
  }
  // The runtime also records "not ready" as its last error, which would be taken for a kernel's.
  CudaStatus query_event(void* event) override {
    const cudaError_t status = cudaEventQuery(event_of(event));
    if (status == cudaErrorNotReady) cudaGetLastError();
    return status;
  }
  CudaStatus synchronize_event(void* event) override {
    return cudaEventSynchronize(event_of(event));
  }
  CudaStatus elapsed(float* milliseconds, void* from, void* to) override {
    return cudaEventElapsedTime(milliseconds, event_of(from), event_of(to));
  }

  CudaStatus copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                  void* stream) override {
    return cudaMemcpyAsync(destination, source, bytes, kind_of(kind), stream_of(stream));
  }
  CudaStatus copy_all(std::span<const CopyRange> ranges, void* stream) override;
  CudaStatus fill(void* destination, int byte, size_t bytes, void* stream) override {
    return cudaMemsetAsync(destination, byte, bytes, stream_of(stream));
  }
  CudaStatus run_on_host(void* stream, void (*function)(void*), void* argument) override {
    return cudaLaunchHostFunc(stream_of(stream), function, argument);
  }

  CudaStatus begin_capture(void* stream) override {
    return cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal);
  }
  CudaStatus end_capture(void* stream, void** graph) override {
    return cudaStreamEndCapture(stream_of(stream), reinterpret_cast<cudaGraph_t*>(graph));
  }
  CudaStatus destroy_graph(void* graph) override {
    return cudaGraphDestroy(static_cast<cudaGraph_t>(graph));
  }
  CudaStatus instantiate_graph(void** instance, void* graph, void* stream) override;
  CudaStatus destroy_graph_instance(void* instance) override {
    return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(instance));
  }
  CudaStatus launch_graph(void* instance, void* stream) override {
    return cudaGraphLaunch(static_cast<cudaGraphExec_t>(instance), stream_of(stream));
  }
};

CudaStatus RuntimeCalls::describe(int gpu, CudaGpu* description) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, gpu);
  if (status != cudaSuccess) return status;
  char bus_id[32] = "";
  if (cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), gpu) != cudaSuccess) cudaGetLastError();
  description->name = properties.name;
  description->pci_bus_id = bus_id;
  description->major = properties.major;
  description->minor = properties.minor;
  description->memory_bytes = properties.totalGlobalMem;
  // Two transfers per clock; the clock is in kHz, the bus width in bits.
  description->memory_bandwidth = 2e3 / 8 * attribute(gpu, cudaDevAttrMemoryClockRate) *
                                  attribute(gpu, cudaDevAttrGlobalMemoryBusWidth);
  description->cycles =
      1e3 * attribute(gpu, cudaDevAttrClockRate) * attribute(gpu, cudaDevAttrMultiProcessorCount);
  description->memory_pools = attribute(gpu, cudaDevAttrMemoryPoolsSupported) != 0;
  description->shares_host_addresses =
      properties.unifiedAddressing != 0 && properties.canMapHostMemory != 0 &&
      attribute(gpu, cudaDevAttrCanUseHostPointerForRegisteredMem) != 0;
  description->prohibited =
      attribute(gpu, cudaDevAttrComputeMode) == static_cast<int>(cudaComputeModeProhibited);
  return cudaSuccess;
}

CudaStatus RuntimeCalls::locate(const void* data, CudaLocation* location) {
  cudaPointerAttributes attributes{};
  const cudaError_t status = cudaPointerGetAttributes(&attributes, data);
  if (status != cudaSuccess) return status;
  location->kind = CudaLocation::Kind::kUnknown;
  location->gpu = attributes.device;
  if (attributes.type == cudaMemoryTypeDevice) {
    location->kind = CudaLocation::Kind::kDevice;
  } else if (attributes.type == cudaMemoryTypeManaged) {
    location->kind = CudaLocation::Kind::kManaged;
  } else if (attributes.type == cudaMemoryTypeHost && attributes.devicePointer == data) {
    location->kind = CudaLocation::Kind::kPinned;
  }
  return cudaSuccess;
}

CudaStatus RuntimeCalls::create_pool(int gpu, void** pool) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = gpu;
  cudaMemPool_t made = nullptr;
  cudaError_t status = cudaMemPoolCreate(&made, &properties);
  if (status != cudaSuccess) return status;
  uint64_t keep = UINT64_MAX;
  status = cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &keep);
  if (status != cudaSuccess) {
    cudaMemPoolDestroy(made);
    return status;
  }
  *pool = made;
  return cudaSuccess;
}

CudaStatus RuntimeCalls::create_stream(void** stream, StreamPriority priority) {
  int least = 0, greatest = 0;
  const cudaError_t status = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (status != cudaSuccess) return status;
  return cudaStreamCreateWithPriority(reinterpret_cast<cudaStream_t*>(stream),
                                      cudaStreamNonBlocking,
                                      priority == StreamPriority::kHigh ? greatest : least);
}

CudaStatus RuntimeCalls::copy_all(std::span<const CopyRange> ranges, void* stream) {
#if CUDART_VERSION >= 12080
  constexpr int kMinDriver = 12080;
  static const int driver = [] {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
  }();
  if (driver < kMinDriver) return cudaErrorNotSupported;
  thread_local std::vector<void*> destinations;
  thread_local std::vector<const void*> sources;
  thread_local std::vector<size_t> sizes;
  destinations.clear();
  sources.clear();
  sizes.clear();
  for (const CopyRange& range : ranges) {
    destinations.push_back(range.destination);
    sources.push_back(range.source);
    sizes.push_back(range.bytes);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first = 0;  // first range to which the attributes apply
#if CUDART_VERSION >= 13000
  return cudaMemcpyBatchAsync(destinations.data(), sources.data(), sizes.data(), sizes.size(),
                              &attributes, &first, 1, stream_of(stream));
#else
  size_t failed = 0;
  return cudaMemcpyBatchAsync(destinations.data(), const_cast<void**>(sources.data()), sizes.data(),
                              sizes.size(), &attributes, &first, 1, &failed, stream_of(stream));
#endif
#else
  static_cast<void>(ranges);
  static_cast<void>(stream);
  return cudaErrorNotSupported;
#endif
}

CudaStatus RuntimeCalls::instantiate_graph(void** instance, void* graph, void* stream) {
  cudaGraphExec_t made = nullptr;
  // Nodes keep the priority of the stream they were captured on, so misses overtake prefetches.
  cudaError_t status = cudaGraphInstantiateWithFlags(&made, static_cast<cudaGraph_t>(graph),
                                                     cudaGraphInstantiateFlagUseNodePriority);
  if (status != cudaSuccess) return status;
  status = cudaGraphUpload(made, stream_of(stream));
  if (status != cudaSuccess) {
    cudaGraphExecDestroy(made);
    return status;
  }
  *instance = made;
  return cudaSuccess;
}

// Few rows are bound by reading the weights. Our own kernel handles them, and gives a row the same
// bits in any such batch.
CublasLt* library_for(const ProjectParams& params) {
  return !cuda::takes_few(params, params.rows) && params.is_plain() ? CublasLt::get() : nullptr;
}

void launch(const KernelCall& call, void* stream) {
  if (const auto* project = std::get_if<ProjectParams>(&call)) {
    if (CublasLt* const cublas = library_for(*project); cublas != nullptr) {
      return cublas->project(*project, stream_of(stream));
    }
  }
  std::visit([&](const auto& params) { cuda::enqueue(params, {DeviceKind::kCuda, stream}); }, call);
}

}  // namespace

CudaPlatform cuda_platform() {
  static auto* const calls = new RuntimeCalls;  // never destroyed: devices may outlive statics
  return {
      .calls = calls,
      .launch = launch,
      .project_scratch = [] { return CublasLt::get() == nullptr ? 0 : CublasLt::kScratchBytes; },
      .machine_code = FASA_CUDA_MACHINE_CODE,
      .ptx = FASA_CUDA_PTX};
}

}  // namespace fasa
