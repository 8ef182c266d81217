// A stream of the emulated device: a queue and the thread that works through it.
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
  std::shared_ptr<const std::string> failure;  // of the work before it
  std::shared_ptr<VirtualClock::Mark> mark = std::make_shared<VirtualClock::Mark>();
  TimelineEntry::Source source;  // the work before it
};

// What the streams of one device share. One mutex for all of it: operations are long beside the few
// instructions under it.
struct EmulatedShared {
  // A host thread waits for all operations up to one. Links itself into a list and takes no memory:
  // memory that is given back is waited for, too. With the mutex held.
  struct HostWait {
    HostWait(EmulatedShared& shared, uint64_t wanted);
    HostWait(const HostWait&) = delete;  // the list knows its place
    HostWait& operator=(const HostWait&) = delete;
    ~HostWait();

    const uint64_t target;
    EmulatedShared& owner;
    HostWait* next;
  };

  explicit EmulatedShared(const VirtualClock::Rates& rates) : clock(rates) {}

  std::mutex mutex;
  std::condition_variable recorded;  // a recording that a stream waits for
  std::condition_variable passed;    // a stream passed what the host waits for
  VirtualClock clock;                // told of operations when they have been executed
  TransferTotals totals;             // seconds are left to the reader
  uint64_t last_sequence = 0;        // of the last operation enqueued anywhere
  std::vector<EmulatedStream*> streams;
  HostWait* host_waits = nullptr;  // those of host threads
  int stream_waits = 0;            // streams that wait for a recording now
  TimelineHook hook;

  // Until everything that was enqueued so far, on any stream, has been executed.
  void wait_for_all(std::unique_lock<std::mutex>& lock);
  // Whether the host waits for an operation from `first` to before `end`, with the mutex held.
  bool anybody_waits(uint64_t first, uint64_t end) const;
};

class EmulatedStream {
 public:
  EmulatedStream(EmulatedShared& shared, StreamPriority priority, std::string name, int threads);
  EmulatedStream(const EmulatedStream&) = delete;  // its thread refers to it
  EmulatedStream& operator=(const EmulatedStream&) = delete;
  ~EmulatedStream();  // executes what is queued first

  enum class Where : uint8_t { kWorker, kArena };  // kArena: with the kernels' threads
  struct Kind {
    const char* name = nullptr;
    OperationTag tag;
    double launch_seconds = 0;  // fixed virtual time beside what the work reports
    Where where = Where::kWorker;
  };
  // The std::function costs an allocation per operation, which an emulator can afford.
  void enqueue(const Kind& kind, std::function<KernelWork()> work);
  std::shared_ptr<Recording> record();
  void wait(std::shared_ptr<const Recording> recording, OperationTag tag);

  // The calling thread is some stream's worker, or runs a kernel's function for one.
  static bool on_worker();

  // With the mutex held.
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
    std::unique_ptr<TimelineEntry> entry;  // null where nothing is recorded
  };

  // What a timeline will say of an operation, null where none is set.
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
  // An arena of its own: streams run side by side whatever the number of threads, and no stream
  // ever executes another's tasks while it waits.
  tbb::task_arena arena_;
  const TimelineStream timeline_key_;
  TimelineEntry::Source last_work_;  // enqueued
  std::condition_variable ready_;
  std::deque<Operation> queue_;                 // the front one is being executed
  std::shared_ptr<const std::string> failure_;  // the first; what follows is skipped
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace fasa
