// A GPU: its memory in a pool of the CUDA runtime's, pinned host memory near to it, its streams and
// events, kernels of its own.
//
// Failures: what a call itself cannot do, it throws, with call, place and bytes. What fails while
// it runs is thrown by the next wait (or call) that learns of it, with what was under way on every
// stream; the GPU's context is lost then, every later call throws the same, and everything can be
// destroyed in order.
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

class CudaDevice final : public Device {
 public:
  // The GPU of this index, which can be used (cuda_choice.h). Throws DeviceError, BudgetError where
  // nothing can be pinned, UsageError for options that it has not (host_alias_bytes).
  CudaDevice(const CudaPlatform& platform, int index, const CudaGpu& gpu, bool only_one,
             const DeviceOptions& options);
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override;
  const CudaGpu& gpu() const { return gpu_; }
  MemoryUse memory(MemorySpace space) const override;

  Stream create_stream(StreamPriority priority, std::string_view name) override;
  // An engine's own cudaStream_t for our calls, which must outlive it. It is not destroyed.
  Stream adopt_stream(void* native, std::string_view name);
  Event create_event() override;
  void record(EventView event, StreamView stream) override;
  void wait(StreamView stream, EventView event) override;
  void synchronize(StreamView stream) override;
  void synchronize(EventView event) override;
  bool done(EventView event) override;

  // Host memory that is not of this device's arena may be copied too, but such a copy waits.
  void copy(void* destination, const void* source, size_t bytes, CopyKind kind,
            StreamView stream) override;
  // In one call of the runtime where it has such a one, unless ranges are small.
  void copy_all(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream) override;
  // From how many bytes a range on: batches of small ones are slower than copies one by one. What
  // is set is from others' reports (28 KiB), rounded up; gpu_bench measures it.
  static constexpr size_t kLeastBatched = size_t{32} << 10;
  void set_least_batched(size_t bytes) { least_batched_ = bytes; }
  void fill(void* destination, int byte, size_t bytes, StreamView stream) override;
  const KernelTable& kernels() const override { return table_; }
  const ModelKernelTable* model_kernels() const override { return &model_table_; }
  // Throws UsageError: host code can't read this device's memory.
  void launch(StreamView stream, const char* name, std::function<KernelWork()> work) override;
  // See CudaStream.
  void run_on_host(StreamView stream, const char* name, std::function<KernelWork()> work);

  bool records_graphs() const override { return true; }
  Graph record_graph(StreamView origin, std::span<const StreamView> others, const char* name,
                     const std::function<void()>& enqueue) override;
  bool launch(GraphView graph) override;
  uint64_t graph_bytes(GraphView graph) const override;

  double seconds_at(EventView event) override;
  // Copies; what kernels move over the link is in the pipeline's counters. Seconds: what the link
  // takes for so many bytes at the rate of large copies, as measured at opening.
  TransferTotals transfers() override;
  CudaLinkRates link() const { return link_; }

  void set_timeline(Timeline* timeline) override;
  Timeline* timeline() const override { return shared_->tap.timeline(); }
  void set_tag(OperationTag tag) override { shared_->tap.set_tag(tag); }

 private:
  class Control;  // the stream that orders memory and the clock

  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override;
  void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept override;
  void destroy_stream(StreamView stream) noexcept override;
  void destroy_event(EventView event) noexcept override;
  void destroy_graph(GraphView graph) noexcept override;

  Stream add_stream(void* native, CudaStream::Ownership ownership, std::string_view name);
  std::byte* allocate_host(size_t bytes, std::string_view purpose);
  void copy_piece(std::byte* destination, const std::byte* source, size_t bytes, CopyKind kind,
                  CudaStream& stream);
  void flush_streams(Timeline* timeline);
  void sample_memory();

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
  const int index_;
  const ThreadCount threads_;
  const KernelTable table_;
  const ModelKernelTable model_table_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<CudaShared> shared_;
  std::unique_ptr<CudaMemory> memory_;
  PinnedArena pinned_;
  MemoryLimit host_limit_;
  MemoryLimit pinned_limit_;
  CudaLinkRates link_;
  size_t least_batched_ = kLeastBatched;
  std::atomic<bool> batches_{true};  // until the runtime says that it has none
  bool batchable(std::span<const CopyRange> ranges, CopyKind kind) const;
  Traffic h2d_;
  Traffic d2h_;
  std::mutex streams_mutex_;
  std::vector<CudaStream*> streams_;
};

}  // namespace fasa
