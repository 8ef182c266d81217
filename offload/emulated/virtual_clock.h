// Computes the time that work would take on an accelerator: a discrete-event model of concurrent
// streams that share one link. Independent of threads and real time; the emulated device reports
// what was enqueued and the work's sizes.
//
// An operation starts at the latest of these times: the end of its predecessor in the stream, the
// marks that it waits for, the host's time when it was enqueued. Then
//   - it computes for its fixed seconds (CallSeconds::fixed; the longer of device bytes and
//     operations, by the device's rates and by the call's); streams do not slow each other down;
//   - its link bytes queue for the link, each direction separately, after the launch and the device
//     bytes that determine them. The link serves them in chunks, so a transfer of a high-priority
//     stream can overtake between two chunks. A transfer ends `link_latency` after its last chunk;
//     latency does not occupy the link;
//   - it ends when all of this has ended.
//
// Times depend neither on when they are queried nor on the real order of execution: the link is
// assigned in the order of decision times, earliest first, and never at a time at which an
// operation that is not known yet could still request it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/emulated/call_seconds.h"
#include "offload/timeline/timeline.h"

namespace fasa {

// Not thread-safe.
class VirtualClock {
 public:
  struct Rates {
    double link_bandwidth = 25e9;  // bytes per second and direction
    double link_latency = 10e-6;   // seconds per transfer
    double memory_bandwidth = 300e9;
    double operations = 0;  // of matrix products, per second; 0: take no time
    uint64_t chunk_bytes = 64 * 1024;
  };
  // A point in a stream: an event's recording. Shared, as either side may be destroyed first.
  struct Mark {
    bool resolved = false;
    double seconds = 0;
  };
  using StreamKey = uint32_t;

  explicit VirtualClock(const Rates& rates) : rates_(rates) {}

  StreamKey open_stream(StreamPriority priority);
  // Operations already added still count; the stream is removed once they are resolved.
  void close_stream(StreamKey stream);

  // Operations of a stream are added in the order they were enqueued. `sequence` increases in the
  // order of enqueueing over all streams and breaks ties; `not_before` is now() at that time.
  // `entry`: null, or the operation's timeline entry, which is reported once its times are known.
  void add_work(StreamKey stream, uint64_t sequence, double not_before, const CallSeconds& least,
                KernelWork work, std::unique_ptr<TimelineEntry> entry = nullptr);
  void add_mark(StreamKey stream, uint64_t sequence, double not_before, std::shared_ptr<Mark> mark);
  void add_wait(StreamKey stream, uint64_t sequence, std::shared_ptr<const Mark> mark,
                std::unique_ptr<TimelineEntry> entry = nullptr);

  // Receiver of entries; null: none. Entries without times yet are dropped.
  void set_timeline(Timeline* timeline);

  // The host waits for a mark, or for the operations of a stream up to `sequence`. All operations
  // enqueued before must have been added. Returns the time; now() is at least that.
  double wait_for(const Mark& mark);
  double wait_for(StreamKey stream, uint64_t sequence);

  double now() const { return now_; }  // host time
  // Link time of `bytes` bytes, without latency.
  double link_seconds(uint64_t bytes) const {
    return static_cast<double>(bytes) / rates_.link_bandwidth;
  }
  // Number of stored operations, for tests of reclamation.
  size_t pending_operations() const;
  size_t known_streams() const { return streams_.size(); }

 private:
  static constexpr int kDirections = 2;  // host to device, device to host
  struct Operation {
    uint64_t sequence = 0;
    double not_before = 0;
    double link_after_seconds = 0;  // relative to its start
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
    // The first operation, once it is on the link.
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
