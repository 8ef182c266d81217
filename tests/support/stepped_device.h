// A device for tests whose streams run only when the test steps them, one operation at a
// time, or a host call that has to wait, in the order that a policy chooses. So every interleaving
// that events allow can be forced. Kernels are the CPU's.
//
// Freeing memory waits for nothing: unlike the emulated device, an owner that lets go too early is
// found out. Thread-safe, one operation at a time.
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
  explicit SteppedDevice(StepPolicy policy = fifo(), const DeviceOptions& options = {});
  ~SteppedDevice() override;

  // Stepping.
  void set_policy(StepPolicy policy);
  // Names of the streams whose next operation may run, in the order of their creation.
  std::vector<std::string> runnable();
  // Runs the stream's next operation; false where it has none or that one still waits.
  bool step(StreamView stream);
  void run_until_idle();
  void run_random(uint64_t seed);  // until idle, whatever the policy
  // Steps by the policy until the next operation of the stream called `stream` has this name and
  // layer (a sequence point); false where that never comes.
  bool run_until(std::string_view stream, std::string_view operation, int layer);
  // What the stream of this name would run next: an operation's name, "record", "wait", or "" for
  // nothing.
  std::string next_operation(std::string_view stream);
  // What a wait of the stream for the event is for: "copy 0 for resolve of compute"; "" where the
  // event was never recorded.
  std::string wait_name(StreamView stream, EventView event);
  // The oldest stream of this name that lives.
  StreamView find_stream(std::string_view name);
  uint64_t executed() const { return executed_; }  // operations, records and waits included
  // Asked before every operation that runs: true where it shall fail. Copies and fills that fail
  // have done half of their work. An empty function: none fails.
  void on_run(std::function<bool(const char* name)> fails);
  // What new memory holds; 0 if not said.
  void fill_new_memory(int byte) { new_memory_ = byte; }

  // Device
  MemoryUse memory(MemorySpace space) const override { return memory_.use(space); }
  Stream create_stream(StreamPriority priority, std::string_view name) override;
  Event create_event() override;
  void record(EventView event, StreamView stream) override;
  double seconds_at(EventView event) override;  // a second an operation
  TransferTotals transfers() override;          // after all that was enqueued

 private:
  friend class SteppedStream;
  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override;
  void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept override;
  void do_synchronize(StreamView stream) override;
  void do_wait(StreamView stream, EventView event, OperationTag tag) override;
  bool passed(EventView event, Patience patience) override;  // kNone steps nothing
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override;
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override;
  void do_fill(void* destination, int byte, size_t bytes, StreamView stream,
               OperationTag tag) override;
  void run(StreamView stream, const char* name, std::function<KernelWork()> work,
           OperationTag tag) override;

  void destroy(SteppedStream& stream) noexcept;
  // `half`: what was done of it where it fails.
  void push(StreamView stream, const char* name, OperationTag tag, std::function<KernelWork()> work,
            std::function<void()> half = nullptr);
  KernelWork execute_work(const SteppedStream& stream, const char* name,
                          const std::function<KernelWork()>& work,
                          const std::function<void()>& half);
  bool step_once();
  void step_until(const std::function<bool()>& reached);
  void execute(SteppedStream& stream);

  // Recursive: what an operation's captures own may be freed while it runs.
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
