// Time of decode steps by layer and cause, from each step's timeline and the runtime's counters.
// Independent of the device.
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

// Reasons for which the compute stream waits.
enum class WaitReason : uint8_t {
  kRows,         // rows in transfer to the device
  kPredictions,  // a prediction of this layer's set that reserves hot rows
  kWriteBack,    // an older row that has not reached the host
  kTables,       // page tables, descriptors, counters
  kOther,
};
inline constexpr size_t kWaitReasons = 5;
const char* wait_reason_name(WaitReason reason);  // "rows", "predictions", "write_back", ...

// One completed decode step.
struct ProfiledStep {
  double seconds = 0;                  // on the device's clock, from its begin to its last output
  std::vector<TimelineEntry> entries;  // of this step
  FetchMetrics fetch;                  // of this step
  std::vector<OverlapCount> overlap;   // by layer; empty: not measured
};

// Rows transferred in one direction for one cause, independent of the link's speed.
struct TransferLoad {
  uint64_t bytes = 0;
  uint64_t rounds = 0;  // sequential transfers, each of which pays the link's latency
  TransferLoad& operator+=(const TransferLoad& other) {
    bytes += other.bytes;
    rounds += other.rounds;
    return *this;
  }
};

// What compute did while rows moved over the link.
enum class Behind : uint8_t {
  kOtherLayers,  // work of another layer
  kScoring,      // this and the next two: of the layer's other heads
  kCodes,        // the low-bit set, in a launch of its own
  kAttention,
  kOther,    // append, work outside the layers
  kNothing,  // it waited or had nothing to do
};
inline constexpr size_t kBehinds = 6;
const char* behind_name(Behind behind);  // "other layers", "scoring", ...

// A kind of work on the compute stream, over all profiled steps.
struct PartProfile {
  double seconds = 0;
  uint64_t calls = 0;
  uint64_t bytes = 0;  // of device memory
};

// Work of a step on its compute stream, by the names of Profile::parts().
struct ComputePart {
  const TimelineEntry* entry;  // of the step
  std::string name;
};

// Seconds and counts over all profiled steps.
struct LayerProfile {
  double compute = 0;  // work on the compute stream
  std::array<double, kWaitReasons> waits{};
  TransferLoad miss;
  double miss_while_scoring = 0;  // bytes moved while the layer was scored
  TransferLoad prefetch;
  uint64_t write_back_bytes = 0;
  StepCounters rows;
  OverlapCount overlap;

  double wait(WaitReason reason) const { return waits[static_cast<size_t>(reason)]; }
  double waiting() const;
  double scoring_share() const;   // share of the missed bytes moved while scoring; 0 if none
  double used_share() const;      // share of the prefetched rows that were used; 0 if none
  uint64_t wasted_bytes() const;  // fetched ahead and not used
  LayerProfile& operator+=(const LayerProfile& other);
};

// The measured speed of row transfers.
struct LinkSpeed {
  double seconds_per_byte = 0;  // host to device, while the link was busy
  double latency = 0;           // the least time of a transfer beyond its bytes' time
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
  const LayerProfile& outside() const { return outside_; }  // work outside the layers
  LayerProfile total() const;                               // layers and outside, summed
  double seconds() const;                                   // all steps
  double idle() const;  // the compute stream was idle and waited for nothing
  LinkSpeed link() const;
  bool knows_overlap() const { return knows_overlap_; }
  // The compute stream's work by name: scoring, codes, attention, weights, append, prediction, and
  // other kernels by their own.
  const std::map<std::string, PartProfile>& parts() const { return parts_; }
  // Head groups of the layers that select tokens, mean.
  double head_groups() const;
  // Seconds in which rows moved over the link, by what compute did meanwhile.
  const std::array<double, kBehinds>& behind() const { return behind_; }

  // Time of the transfers of rows that a step used: misses, and the used share of the prefetched
  // rows.
  double transfer(const LayerProfile& part) const;
  // 1 - wait for rows / transfer, in [0, 1]; 1 if nothing was transferred.
  double hidden(const LayerProfile& part) const;
  // Sums over the parts; each part has its own used share.
  double total_transfer() const;
  double total_hidden() const;
  uint64_t total_wasted_bytes() const;

 private:
  LayerProfile& part_of(OperationTag tag);
  void add_entry(const TimelineEntry& entry, TimelineStream compute);
  void add_parts(const std::vector<TimelineEntry>& entries, TimelineStream compute);
  void add_behind(const std::vector<TimelineEntry>& entries, const std::vector<ComputePart>& parts);
  void add_rounds(const std::vector<TimelineEntry>& entries);
  void add_link(const std::vector<TimelineEntry>& entries);

  std::vector<LayerProfile> layers_;
  LayerProfile outside_;
  std::vector<StepPoint> points_;
  std::map<std::string, PartProfile> parts_;
  std::array<double, kBehinds> behind_{};
  uint64_t selects_ = 0;           // head groups of all layers and steps
  uint64_t selecting_layers_ = 0;  // of all steps
  bool knows_overlap_ = false;
  double link_busy_ = 0;
  uint64_t link_bytes_ = 0;
  std::optional<double> latency_;
};

// The stream that runs attention; none if no entry is attention.
std::optional<TimelineStream> compute_stream(const std::vector<TimelineEntry>& entries);

// In order of time.
std::vector<ComputePart> compute_parts(const std::vector<TimelineEntry>& entries,
                                       TimelineStream compute);

WaitReason wait_reason(const TimelineEntry& wait);

}  // namespace fasa
