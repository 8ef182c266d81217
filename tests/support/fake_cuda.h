// A fake CUDA runtime on the host, as lazy as the real one may be: enqueued work runs only when a
// caller waits for it, each stream in its own order, after the work that the stream waits for.
// Kernels are the CPU's. It has a GPU's memory of a set size, copies unpinned host memory as the
// runtime does, and any call, or any operation while it runs, can be made to fail. Captured work
// has no order beyond that of events and streams, and a call that is illegal in a capture fails and
// ends the capture; so does waiting for a captured stream, on any thread. The legacy stream takes
// neither captures nor batches of copies. A lost context is reported as the last error once.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "offload/cuda/cuda_calls.h"
#include "offload/open_device.h"

namespace fasa {

class FakeCuda final : public CudaCalls {
 public:
  FakeCuda();
  FakeCuda(const FakeCuda&) = delete;  // streams point to it
  FakeCuda& operator=(const FakeCuda&) = delete;
  ~FakeCuda() override;

  CudaPlatform platform();
  // Uses other kernels: the function runs a kernel call on the host.
  using Kernels = std::function<void(const KernelCall&)>;
  CudaPlatform platform(Kernels kernels);

  // The machine; set before a device is opened.
  int driver_version = 13000;
  int runtime_version = 13000;
  CudaStatus count_status = cuda_status::kSuccess;
  std::vector<CudaGpu> gpus;
  uint64_t others_bytes = 0;  // of GPU memory, used by other processes; may change at any time

  // The n-th call from now (1 = the next) of the method of that name fails with `status`.
  void fail_call(std::string name, int64_t nth, CudaStatus status);
  // The n-th operation from now fails while it runs, and makes the context unusable.
  void fail_operation(int64_t nth, CudaStatus status = cuda_status::kIllegalAddress);
  void synchronize_all();          // runs all enqueued work
  void pass_time(double seconds);  // advances the GPU's clock

  // A caller's own resources: memory and streams of a second GPU. With strangers_on_device all
  // memory that is not pinned counts as the GPU's own, at a location on it. Eager: work is done
  // when it is enqueued, so that host code may read its results.
  std::map<const std::byte*, size_t> elsewhere;
  std::set<const void*> foreign_streams;
  bool strangers_on_device = false;
  bool eager = false;

  // Objects that were created and not destroyed.
  int64_t live_streams = 0;
  int64_t live_events = 0;
  int64_t live_pools = 0;
  uint64_t device_bytes = 0;  // allocated
  std::map<const std::byte*, size_t> registered;
  int registrations = 0;
  int copies = 0;
  int64_t live_graphs = 0;           // instances and their graphs
  uint64_t graph_node_bytes = 1024;  // GPU memory of an instance, per node
  // The order in which a launch runs nodes that are not ordered by the graph.
  enum class GraphOrder : uint8_t { kFirstComeFirst, kLastComeFirst, kShuffled };
  GraphOrder graph_order = GraphOrder::kLastComeFirst;
  std::map<std::string, int64_t> calls;  // how often each method was called

  // cudaStreamLegacy, which a caller may adopt.
  static void* legacy_stream() { return reinterpret_cast<void*>(1); }

  struct FakeStream;
  FakeStream& stream_of(void* stream);
  void enqueue(FakeStream& stream, std::function<void()> work);

  // CudaCalls
  std::string name_of(CudaStatus status) override;
  std::string text_of(CudaStatus status) override;
  CudaStatus take_last_error() override;
  CudaStatus versions(int* driver, int* runtime) override;
  CudaStatus count_gpus(int* count) override;
  CudaStatus describe(int gpu, CudaGpu* description) override;
  CudaStatus current_gpu(int* gpu) override;
  CudaStatus use_gpu(int gpu) override;
  CudaStatus free_memory(uint64_t* free_bytes, uint64_t* total_bytes) override;
  CudaStatus create_pool(int gpu, void** pool) override;
  CudaStatus destroy_pool(void* pool) override;
  CudaStatus trim_pool(void* pool) override;
  CudaStatus allocate(void** data, size_t bytes, void* pool, void* stream) override;
  CudaStatus free(void* data, void* pool, void* stream) override;
  CudaStatus register_host(void* data, size_t bytes) override;
  CudaStatus unregister_host(void* data) override;
  CudaStatus locate(const void* data, CudaLocation* location) override;
  CudaStatus create_stream(void** stream, StreamPriority priority) override;
  CudaStatus destroy_stream(void* stream) override;
  CudaStatus synchronize_stream(void* stream) override;
  CudaStatus gpu_of_stream(void* stream, int* gpu) override;
  CudaStatus create_event(void** event) override;
  CudaStatus destroy_event(void* event) override;
  CudaStatus record(void* event, void* stream) override;
  CudaStatus wait(void* stream, void* event) override;
  CudaStatus query_event(void* event) override;
  CudaStatus synchronize_event(void* event) override;
  CudaStatus elapsed(float* milliseconds, void* from, void* to) override;
  CudaStatus copy(void* destination, const void* source, size_t bytes, CopyKind kind,
                  void* stream) override;
  CudaStatus copy_all(std::span<const CopyRange> ranges, void* stream) override;
  CudaStatus fill(void* destination, int byte, size_t bytes, void* stream) override;
  CudaStatus run_on_host(void* stream, void (*function)(void*), void* argument) override;
  CudaStatus begin_capture(void* stream) override;
  CudaStatus end_capture(void* stream, void** graph) override;
  CudaStatus destroy_graph(void* graph) override;
  CudaStatus instantiate_graph(void** instance, void* graph, void* stream) override;
  CudaStatus destroy_graph_instance(void* instance) override;
  CudaStatus launch_graph(void* instance, void* stream) override;

 private:
  struct Recording;
  struct FakeEvent;
  struct Operation;
  struct Capture;
  struct FakeGraph;

  // Marks a call that is illegal in a capture: ends this thread's capture, if there is one.
  CudaStatus outside_capture(const char* name);
  Capture* capture_here();  // this thread's capture, or null
  CudaStatus break_capture(Capture& capture, CudaStatus status);
  static bool captured(void* event);
  // Called before work enters a stream.
  CudaStatus enter_stream(const char* name, void* stream);
  std::vector<size_t> launch_order(const FakeGraph& graph);

  // Counts the call; returns the status to return at once, or success if the call may go on.
  CudaStatus enter(const char* name);
  CudaStatus fail(CudaStatus status);
  void run_next(FakeStream& stream);
  void run_all(FakeStream& stream);
  void reach(const std::shared_ptr<Recording>& recording);
  // True if the stream was destroyed or never existed.
  bool gone(const void* stream) const {
    return stream != nullptr && stream != legacy_stream() && !streams_.contains(stream);
  }
  bool on_device(const void* data, size_t bytes) const;
  bool pinned(const void* data, size_t bytes) const;
  uint64_t left() const;

  mutable std::recursive_mutex mutex_;
  std::map<std::string, std::pair<int64_t, CudaStatus>> failing_calls_;
  int64_t failing_operation_ = 0;
  CudaStatus operation_status_ = cuda_status::kSuccess;
  CudaStatus lost_ = cuda_status::kSuccess;  // every call returns it once it is no success
  CudaStatus last_error_ = cuda_status::kSuccess;
  double seconds_ = 0;
  std::map<const std::byte*, size_t> blocks_;
  std::set<const void*> streams_;  // live ones
  std::unique_ptr<FakeStream> legacy_;
  uint64_t kept_bytes_ = 0;  // cached by pools
  uint64_t graph_bytes_ = 0;
  std::shared_ptr<Capture> capture_;  // under way; one at a time
  uint64_t shuffles_ = 0;
};

// Name the first GPU; for tests, which open many devices.
DeviceOptions cuda_options();
std::unique_ptr<Device> open_fake(FakeCuda& fake);

}  // namespace fasa
