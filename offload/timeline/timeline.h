// Operations and waits of a device's streams, with times on the device's clock. A device adds an
// entry when both its start and its end are known, so entries are unordered. Operations that
// failed, or were skipped after a failure, have no entry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/params.h"
#include "offload/operation_tag.h"

namespace fasa {

using TimelineStream = uint32_t;

struct TimeSpan {
  double start = 0;  // seconds
  double end = 0;
  double seconds() const { return end - start; }
};

struct TimelineEntry {
  enum class Kind : uint8_t {
    kWork,  // a kernel, a copy, a fill, host work
    kWait,  // the stream was idle for an event; waits without delay have no entry
  };
  // The last operation in the event's stream before the recording.
  struct Source {
    TimelineStream stream = 0;
    const char* name = nullptr;  // null: none
    OperationTag tag;
  };

  Kind kind = Kind::kWork;
  TimelineStream stream = 0;
  const char* name = nullptr;  // outlives the timeline
  OperationTag tag;
  KernelWork work;      // bytes; none for a wait
  double enqueued = 0;  // host time on the device's clock
  TimeSpan span;
  // Host to device, device to host: from the departure of the first byte to that of the last,
  // without latency. Empty spans if nothing moved.
  std::array<TimeSpan, 2> link{};
  Source awaited;  // for waits
};

// A counter's value from `seconds` on.
struct TimelineSample {
  const char* name = nullptr;
  double seconds = 0;
  double value = 0;
};
inline constexpr char kDeviceMemoryCounter[] = "device memory";  // bytes used
inline constexpr char kHitRateCounter[] = "hit rate";            // of one decode step, 0 to 1

// Thread-safe. Memory is bounded: beyond `most` entries, and as many samples, new ones are counted
// and dropped.
class Timeline {
 public:
  static constexpr size_t kMaxEntries = size_t{1} << 20;
  explicit Timeline(size_t most = kMaxEntries) : max_(most) {}

  // Called by devices.
  void name_stream(TimelineStream stream, std::string_view name);
  void add(const TimelineEntry& entry);
  // A counter's value at a known time.
  void sample(const char* name, double seconds, double value) noexcept;
  // Called by work on streams: the value found by the operation `name`, now running. It applies
  // from the operation's end, which is not known yet. Only one stream may run operations of that
  // name.
  void sample_operation(const char* name, double value);

  // For readers: entries from index `first` on, in the order in which they were added.
  size_t size() const;
  std::vector<TimelineEntry> entries(size_t first = 0) const;
  std::vector<TimelineSample> samples() const;
  std::map<TimelineStream, std::string> streams() const;
  uint64_t dropped() const;  // entries and samples
  // Drops entries and samples, keeps stream names.
  void clear();

 private:
  static constexpr size_t kChunk = 512;
  using Chunk = std::array<TimelineEntry, kChunk>;

  void resolve_sample(const TimelineEntry& entry);
  void store_sample(const TimelineSample& sample);

  const size_t max_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> chunks_;  // growth copies no entry
  size_t size_ = 0;
  uint64_t dropped_ = 0;
  std::vector<TimelineSample> samples_;
  std::deque<TimelineSample> unresolved_;  // without a time
  std::map<TimelineStream, std::string> streams_;
};

}  // namespace fasa
