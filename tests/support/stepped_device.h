// A device for tests whose streams run one operation at a time, only when the test steps them or a
// host call has to wait, in the order that a policy chooses: a test can force every interleaving
// that events allow. Kernels are the CPU's.
//
// Freeing memory does not wait for work: unlike the emulated device, it detects an owner that frees
// too early. Thread-safe, one operation at a time.
#pragma once

#include <tbb/task_arena.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "offload/device.h"
#include "offload/host/space_allocator.h"
#include "tests/support/step_policy.h"

namespace fasa {

class SteppedStream;

class SteppedDevice final : public Device, private HostWork {
 public:
  // `kind`: what it says it is.
  explicit SteppedDevice(StepPolicy policy = fifo(), const DeviceOptions& options = {},
                         DeviceKind kind = DeviceKind::kEmulated);
  ~SteppedDevice() override;

  // Stepping.
  void set_policy(StepPolicy policy);
  // Names of the streams whose next operation may run, in the order of their creation.
  std::vector<std::string> runnable();
  // Runs the stream's next operation; false where it has none or that one still waits.
  bool step(StreamView stream);
  void run_until_idle();
  void run_random(uint64_t seed);  // until idle, ignoring the policy
  // Steps by the policy until the next operation of the stream named `stream` has this name and
  // layer (a sequence point); false if that never happens.
  bool run_until(std::string_view stream, std::string_view operation, int layer);
  // The next operation of the stream of this name: an operation's name, "record", "wait", or "" if
  // there is none.
  std::string next_operation(std::string_view stream);
  // Describes a wait of the stream for the event: "copy 0 for resolve of compute"; "" if the event
  // was never recorded.
  std::string wait_name(StreamView stream, EventView event);
  // The oldest live stream of this name.
  StreamView find_stream(std::string_view name);
  uint64_t executed() const { return executed_; }  // records and waits included
  // Called before every operation that runs: true makes it fail. Failing copies and fills have done
  // half of their work. An empty function: none fails.
  void on_run(std::function<bool(const char* name)> fails);
  // The byte that fills new memory; 0 by default.
  void fill_new_memory(int byte) { new_memory_ = byte; }

  // Device
  MemoryUse memory(MemorySpace space) const override { return memory_.use(space); }
  Stream create_stream(StreamPriority priority, std::string_view name) override;
  Event create_event() override;
  void record(EventView event, StreamView stream) override;
  double seconds_at(EventView event) override;  // each operation takes a second
  TransferTotals transfers() override;          // after all enqueued work

 private:
  friend class SteppedStream;
  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override;
  void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept override;
  void do_synchronize(StreamView stream) override;
  void do_wait(StreamView stream, EventView event, OperationTag tag) override;
  bool passed(EventView event, Patience patience) override;  // kNone does not step
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override;
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override;
  void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
               OperationTag tag) override;
  void run(StreamView stream, const char* name, std::function<KernelWork()> work,
           OperationTag tag) override;

  void destroy(SteppedStream& stream) noexcept;
  // `half`: the part of the work that is done if it fails.
  void push(StreamView stream, const char* name, OperationTag tag, std::function<KernelWork()> work,
            std::function<void()> half = nullptr);
  KernelWork execute_work(const SteppedStream& stream, const char* name,
                          const std::function<KernelWork()>& work,
                          const std::function<void()>& half);
  bool step_once();
  void step_until(const std::function<bool()>& reached);
  void execute(SteppedStream& stream);

  // Recursive: objects captured by an operation may be freed while it runs.
  std::recursive_mutex mutex_;
  StepPolicy policy_;
  SpaceAllocator memory_;
  tbb::task_arena arena_;
  std::vector<std::unique_ptr<SteppedStream>> streams_;
  uint64_t enqueued_ = 0;
  uint64_t executed_ = 0;
  TransferTotals totals_;
  std::function<bool(const char* name)> fails_;
  int new_memory_ = 0;
};

}  // namespace fasa
