// The time that work would have taken on an accelerator: a discrete-event model of streams that
// run side by side and of one link that they share. Knows nothing of threads or of real time; the
// emulated device tells it what was enqueued and what that did.
//
// An operation starts at the latest of: the end of what came before it in its stream, the marks
// that it waits for, and the host's time when it was enqueued. Then
//   - it computes for its fixed seconds (launch, device bytes over memory bandwidth); streams don't
//     slow each other down;
//   - its link bytes queue for the link once the launch is over, and the device bytes that tell
//     which they are have been moved, each direction by itself, and are
//     served in chunks, so that a later transfer of a high-priority stream overtakes between two.
//     The transfer ends `link_latency` after its last chunk; latency doesn't occupy the link;
//   - it ends when all of that has.
//
// Times don't depend on when they are asked for, nor on the order in which streams really ran: the
// link is given away in the order of decision times, always the earliest first, and never at a time
// at which an operation that is not known yet could still ask for it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/timeline/timeline.h"

namespace fasa {

// One thread at a time.
class VirtualClock {
 public:
  struct Rates {
    double link_bandwidth = 25e9;  // bytes per second and direction
    double link_latency = 10e-6;   // seconds per transfer
    double memory_bandwidth = 300e9;
    uint64_t chunk_bytes = 64 * 1024;
  };
  // A point in a stream, an event's recording. Shared, because either side may go first.
  struct Mark {
    bool resolved = false;
    double seconds = 0;
  };
  using StreamKey = uint32_t;

  explicit VirtualClock(const Rates& rates) : rates_(rates) {}

  StreamKey open_stream(StreamPriority priority);
  // What was added still counts; the stream is forgotten when it is resolved.
  void close_stream(StreamKey stream);

  // Each stream's operations in the order in which they were enqueued there. `sequence` rises in
  // the order of enqueueing over all streams and settles ties; `not_before` is now() at that time.
  // `entry`: null, or what is known of the operation; it goes to the timeline with its times.
  void add_work(StreamKey stream, uint64_t sequence, double not_before, double launch_seconds,
                const KernelWork& work, std::unique_ptr<TimelineEntry> entry = nullptr);
  void add_mark(StreamKey stream, uint64_t sequence, double not_before, std::shared_ptr<Mark> mark);
  void add_wait(StreamKey stream, uint64_t sequence, std::shared_ptr<const Mark> mark,
                std::unique_ptr<TimelineEntry> entry = nullptr);

  // Where entries go, null = nowhere. Those that still wait for their times are forgotten.
  void set_timeline(Timeline* timeline);

  // The host waits: for a mark, for the operations of a stream up to `sequence`. All operations
  // that were enqueued before must have been added. Return the time, and now() is at least that.
  double wait_for(const Mark& mark);
  double wait_for(StreamKey stream, uint64_t sequence);

  double now() const { return now_; }  // of the host
  // Link seconds of so many bytes, without latency.
  double link_seconds(uint64_t bytes) const {
    return static_cast<double>(bytes) / rates_.link_bandwidth;
  }
  // What is kept, for tests of reclamation.
  size_t pending_operations() const;
  size_t known_streams() const { return streams_.size(); }

 private:
  static constexpr int kDirections = 2;  // host to device, device to host
  struct Operation {
    uint64_t sequence = 0;
    double not_before = 0;
    double link_after_seconds = 0;  // of its start
    double busy_seconds = 0;        // launch included
    std::array<uint64_t, kDirections> link_bytes{};
    std::shared_ptr<Mark> mark;
    std::shared_ptr<const Mark> wait;
    std::unique_ptr<TimelineEntry> entry;
  };
  struct StreamState {
    StreamPriority priority;
    bool closed = false;
    double time = 0;  // end of the last resolved operation
    std::deque<Operation> operations;
    // The head, once it is on the link.
    bool head_started = false;
    double head_start = 0;
    double head_ready = 0;  // when it may use the link
    double head_end = 0;
  };
  struct Decision {
    double time = 0;
    int direction = 0;
    StreamState* stream = nullptr;  // null: nothing waits for the link
  };

  void settle();
  bool step_head(StreamState& state);
  Decision next_decision();
  void serve(const Decision& decision);
  void note_link(Operation& operation, const Decision& decision, uint64_t bytes) const;
  void note_wait(const StreamState& state, Operation& wait) const;
  void note_end(Operation& operation, double start, double end) const;
  template <typename Resolved>
  void run_until(Resolved resolved);
  void catch_up();

  const Rates rates_;
  std::map<StreamKey, StreamState> streams_;
  StreamKey next_stream_ = 0;
  std::array<double, kDirections> link_free_{};
  double now_ = 0;
  Timeline* timeline_ = nullptr;
};

}  // namespace fasa
