// A GPU: device memory in a pool of the CUDA runtime, pinned host memory on the nearest NUMA node,
// streams, events and its own kernels.
//
// Failures: a call that fails itself throws at once, with call, place and bytes. Work that fails
// later is reported by the next wait (or call) that detects it, with the operations in flight on
// every stream. The GPU's context is then lost: every later call throws the same error, and all
// objects can be destroyed in order.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_graph.h"
#include "offload/cuda/cuda_link.h"
#include "offload/cuda/cuda_memory.h"
#include "offload/cuda/cuda_shared.h"
#include "offload/cuda/cuda_stream.h"
#include "offload/cuda/pinned_arena.h"
#include "offload/device.h"
#include "offload/device_options.h"
#include "offload/host/thread_count.h"

namespace fasa {

class CudaDevice final : public Device, private GraphRecorder {
 public:
  // Opens the GPU of this index, which must be usable (cuda_choice.h). Throws DeviceError;
  // BudgetError if no memory can be pinned; UsageError for unsupported options (host_alias_bytes).
  CudaDevice(const CudaPlatform& platform, int index, const CudaGpu& gpu, bool only_one,
             const DeviceOptions& options);
  ~CudaDevice() override;

  const CudaGpu& gpu() const { return gpu_; }
  MemoryUse memory(MemorySpace space) const override;
  Stream create_stream(StreamPriority priority, std::string_view name) override;
  // Wraps an engine's cudaStream_t, which must outlive the result and is not destroyed with it.
  // Throws UsageError for a stream of another GPU and for an invalid or destroyed stream.
  Stream adopt_stream(void* native, std::string_view name);
  // Throws UsageError if the owner of an adopted stream has destroyed it, as far as the driver
  // detects that.
  void require_alive(StreamView stream);
  // Throws DeviceError.
  CudaLocation locate(const void* data);
  int index() const { return shared_->index; }
  Event create_event() override;
  void record(EventView event, StreamView stream) override;
  double seconds_at(EventView event) override;
  // Counts copies; the pipeline's counters have the bytes that kernels move over the link. Seconds:
  // bytes at the rate of large copies, measured when the device is opened.
  TransferTotals transfers() override;
  CudaLinkRates link() const { return link_; }
  void set_timeline(Timeline* timeline) override;

  // See CudaStream.
  void run_on_host(StreamView stream, const char* name, std::function<KernelWork()> work);
  // Minimum bytes per range for batched copies: batches of smaller ranges are slower than single
  // copies. Based on published reports (28 KiB), rounded up; gpu_bench measures it.
  static constexpr size_t kMinBatched = size_t{32} << 10;
  void set_least_batched(size_t bytes) { min_batched_ = bytes; }

 private:
  class Control;  // the stream that orders memory and the clock

  KernelCosts kernel_costs(const DeviceOptions& options);
  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override;
  void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept override;
  void do_synchronize(StreamView stream) override;
  void do_wait(StreamView stream, EventView event, OperationTag tag) override;
  bool passed(EventView event, Patience patience) override;
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override;
  // Copies of host memory outside this device's arena are synchronous. Several ranges go in one
  // call if the runtime supports it and the ranges are large enough.
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override;
  void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
               OperationTag tag) override;
  Graph record_graph(StreamView origin, std::span<const StreamView> others, const char* name,
                     const std::function<void()>& enqueue) override;
  bool launch_graph(GraphView graph) override;
  uint64_t graph_bytes(GraphView graph) const override;

  void require_ours(void* native);
  Stream add_stream(void* native, CudaStream::Ownership ownership, std::string_view name);
  std::byte* allocate_host(size_t bytes, std::string_view purpose);
  void copy_one(const CopyRange& range, CopyKind kind, CudaStream& stream, OperationTag tag);
  void copy_piece(const CopyRange& piece, CopyKind kind, CudaStream& stream, OperationTag tag);
  // Returns false, without copying, if the runtime does not support batches.
  bool copy_batch(std::span<const CopyRange> ranges, CopyKind kind, CudaStream& stream,
                  OperationTag tag);
  bool batchable(std::span<const CopyRange> ranges, CopyKind kind, const CudaStream& stream) const;
  void flush_streams(Timeline* timeline);

  struct Traffic {
    void add(uint64_t more_bytes, uint64_t more_operations) {
      bytes.fetch_add(more_bytes, std::memory_order_relaxed);
      operations.fetch_add(more_operations, std::memory_order_relaxed);
    }
    std::atomic<uint64_t> bytes{0};
    std::atomic<uint64_t> operations{0};
  };
  void count_copy(CopyKind kind, size_t bytes);

  CudaCalls& calls_;
  const CudaGpu gpu_;
  const ThreadCount threads_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<CudaShared> shared_;
  std::unique_ptr<CudaMemory> memory_;
  PinnedArena pinned_;
  MemoryLimit host_limit_;
  MemoryLimit pinned_limit_;
  CudaLinkRates link_;
  size_t min_batched_ = kMinBatched;
  std::atomic<bool> batches_{true};  // false once the runtime refuses a batch
  Traffic h2d_;
  Traffic d2h_;
};

}  // namespace fasa
