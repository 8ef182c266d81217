// What decode steps spent their time on, layer by layer: made from a timeline of each step and from
// what the runtime counted. Knows no device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "offload/timeline/timeline.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/trace/set_overlap.h"

namespace fasa {

// What the compute stream stood still for.
enum class WaitReason : uint8_t {
  kRows,         // rows on their way to the device
  kPredictions,  // a prediction of this layer's set that claims hot rows
  kWriteBack,    // an older row that is not on the host yet
  kTables,       // page tables, descriptors, counters
  kOther,
};
inline constexpr size_t kWaitReasons = 5;
const char* wait_reason_name(WaitReason reason);  // "rows", "predictions", "write_back", ...

// One decode step that has passed.
struct ProfiledStep {
  double seconds = 0;                  // on the device's clock, from its begin to its last output
  std::vector<TimelineEntry> entries;  // of this step
  FetchMetrics fetch;                  // of this step
  std::vector<OverlapCount> overlap;   // by layer; empty: not measured
};

// Rows that went one way for one cause, before anything is known of the link's speed.
struct TransferLoad {
  uint64_t bytes = 0;
  uint64_t rounds = 0;  // transfers one behind the other, each of which pays the link's latency
  TransferLoad& operator+=(const TransferLoad& other) {
    bytes += other.bytes;
    rounds += other.rounds;
    return *this;
  }
};

// Seconds and counts over all profiled steps.
struct LayerProfile {
  double compute = 0;  // work on the compute stream
  std::array<double, kWaitReasons> waits{};
  TransferLoad miss;
  double miss_while_scoring = 0;  // bytes of it that moved while the layer was scored
  TransferLoad prefetch;
  uint64_t write_back_bytes = 0;
  StepCounters rows;
  OverlapCount overlap;

  double wait(WaitReason reason) const { return waits[static_cast<size_t>(reason)]; }
  double waiting() const;
  double scoring_share() const;   // of the misses' bytes, those moved while scoring; 0 without
  double used_share() const;      // of what was fetched ahead; 0 where nothing was
  uint64_t wasted_bytes() const;  // fetched ahead and not used
  LayerProfile& operator+=(const LayerProfile& other);
};

// How fast rows went, measured.
struct LinkSpeed {
  double seconds_per_byte = 0;  // host to device, while the link was busy
  double latency = 0;           // of a transfer, beside its bytes' time: the least that was seen
};

struct StepPoint {
  double seconds = 0;
  double hit_rate = 1;
  double wait_rows = 0;
  uint64_t miss_bytes = 0;
  uint64_t prefetch_bytes = 0;
};

class Profile {
 public:
  explicit Profile(int layers) : layers_(static_cast<size_t>(layers)) {}

  void add(const ProfiledStep& step);

  size_t steps() const { return points_.size(); }
  const std::vector<StepPoint>& points() const { return points_; }
  const std::vector<LayerProfile>& layers() const { return layers_; }
  const LayerProfile& outside() const { return outside_; }  // work that belongs to no layer
  LayerProfile total() const;                               // layers and outside, summed
  double seconds() const;                                   // of all steps
  double idle() const;  // the compute stream had nothing to do and waited for nothing
  LinkSpeed link() const;
  bool knows_overlap() const { return knows_overlap_; }

  // Time of the transfers of rows that a step then used: misses, and of what was fetched ahead the
  // share that was used.
  double transfer(const LayerProfile& part) const;
  // 1 - wait for rows / transfer, in [0, 1]; 1 where nothing was transferred.
  double hidden(const LayerProfile& part) const;
  // Sums over the parts, each with its own share of used predictions.
  double total_transfer() const;
  double total_hidden() const;
  uint64_t total_wasted_bytes() const;

 private:
  LayerProfile& part_of(OperationTag tag);
  void add_entry(const TimelineEntry& entry, TimelineStream compute);
  void add_while_scoring(const std::vector<TimelineEntry>& entries, TimelineStream compute);
  void add_rounds(const std::vector<TimelineEntry>& entries);
  void add_link(const std::vector<TimelineEntry>& entries);

  std::vector<LayerProfile> layers_;
  LayerProfile outside_;
  std::vector<StepPoint> points_;
  bool knows_overlap_ = false;
  double link_busy_ = 0;
  uint64_t link_bytes_ = 0;
  std::optional<double> latency_;
};

// The stream that attends; none where nothing did.
std::optional<TimelineStream> compute_stream(const std::vector<TimelineEntry>& entries);

}  // namespace fasa
