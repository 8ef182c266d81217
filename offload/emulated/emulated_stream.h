// A stream of the emulated device: a queue and its worker thread.
#pragma once

#include <tbb/task_arena.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/emulated/virtual_clock.h"
#include "offload/timeline/timeline_hook.h"

namespace fasa {

class EmulatedStream;

// One recording of an event.
struct Recording {
  bool executed = false;
  std::shared_ptr<const std::string> failure;  // failure of earlier work
  std::shared_ptr<VirtualClock::Mark> mark = std::make_shared<VirtualClock::Mark>();
  TimelineEntry::Source source;  // the last operation before it
};

// State shared by the streams of one device. One mutex for all: operations are long compared with
// the code under it.
struct EmulatedShared {
  // A host thread that waits for all operations up to one. It links itself into a list and
  // allocates nothing, because frees wait too. Requires the mutex.
  struct HostWait {
    HostWait(EmulatedShared& shared, uint64_t wanted);
    HostWait(const HostWait&) = delete;  // the list holds its address
    HostWait& operator=(const HostWait&) = delete;
    ~HostWait();

    const uint64_t target;
    EmulatedShared& owner;
    HostWait* next;
  };

  explicit EmulatedShared(const VirtualClock::Rates& rates) : clock(rates) {}

  std::mutex mutex;
  std::condition_variable recorded;  // an event was recorded that a stream waits for
  std::condition_variable passed;    // a stream passed an operation that the host waits for
  VirtualClock clock;                // learns of operations after their execution
  TransferTotals totals;             // without seconds
  uint64_t last_sequence = 0;        // last operation enqueued on any stream
  std::vector<EmulatedStream*> streams;
  HostWait* host_waits = nullptr;  // waiting host threads
  int stream_waits = 0;            // streams that wait for a recording
  TimelineHook hook;

  // Waits until everything enqueued so far, on any stream, has been executed.
  void wait_for_all(std::unique_lock<std::mutex>& lock);
  // True if the host waits for an operation in [first, end). Requires the mutex.
  bool anybody_waits(uint64_t first, uint64_t end) const;
};

class EmulatedStream {
 public:
  EmulatedStream(EmulatedShared& shared, StreamPriority priority, std::string name, int threads);
  EmulatedStream(const EmulatedStream&) = delete;  // its thread refers to it
  EmulatedStream& operator=(const EmulatedStream&) = delete;
  ~EmulatedStream();  // executes the queue first

  enum class Where : uint8_t { kWorker, kArena };  // kArena: with the kernels' threads
  struct Kind {
    const char* name = nullptr;
    OperationTag tag;
    double seconds = 0;  // fixed virtual time, added to the work's own
    std::function<CallSeconds()> call_seconds = nullptr;  // in addition, known once it is done
    Where where = Where::kWorker;
  };
  // The std::function allocates per operation, which an emulator can afford.
  void enqueue(const Kind& kind, std::function<KernelWork()> work);
  std::shared_ptr<Recording> record();
  void wait(std::shared_ptr<const Recording> recording, OperationTag tag);

  // True on a stream's worker thread, or on a thread that runs a kernel for one.
  static bool on_worker();

  // Requires the mutex.
  uint64_t oldest() const {  // sequence of the oldest operation not yet executed
    return queue_.empty() ? std::numeric_limits<uint64_t>::max() : queue_.front().sequence;
  }
  const std::shared_ptr<const std::string>& failure() const { return failure_; }
  VirtualClock::StreamKey clock_key() const { return clock_key_; }

 private:
  struct Operation {
    uint64_t sequence = 0;
    double not_before = 0;
    Kind kind;
    std::function<KernelWork()> work;
    std::shared_ptr<Recording> records;
    std::shared_ptr<const Recording> waits;
    std::unique_ptr<TimelineEntry> entry;  // null: not recorded
  };

  // The timeline entry of an operation; null if no timeline is set.
  std::unique_ptr<TimelineEntry> entry_of(TimelineEntry::Kind kind, const char* name,
                                          OperationTag tag) const;
  void start_worker();  // throws DeviceError
  void push(Operation operation);
  void run();
  void execute(Operation& operation, std::unique_lock<std::mutex>& lock);
  void execute_work(Operation& operation, std::unique_lock<std::mutex>& lock);
  void count(const KernelWork& work);

  EmulatedShared& shared_;
  const std::string name_;
  VirtualClock::StreamKey clock_key_;
  // A separate arena: streams run concurrently for any number of threads, and no stream executes
  // another's tasks while it waits.
  tbb::task_arena arena_;
  const TimelineStream timeline_key_;
  TimelineEntry::Source last_work_;  // last enqueued operation
  std::condition_variable ready_;
  std::deque<Operation> queue_;                 // the front operation is being executed
  std::shared_ptr<const std::string> failure_;  // first failure; later operations are skipped
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace fasa
