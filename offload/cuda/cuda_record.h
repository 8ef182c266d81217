// Records a stream's operations for a timeline: each between two events, reported when both have
// completed. Active only while a timeline is set.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "offload/cuda/cuda_shared.h"
#include "offload/timeline/timeline.h"

namespace fasa {

// Thread-safe.
class CudaRecord {
 public:
  explicit CudaRecord(CudaShared& shared) : shared_(shared) {}
  CudaRecord(const CudaRecord&) = delete;  // owns events
  CudaRecord& operator=(const CudaRecord&) = delete;
  ~CudaRecord();

  // Call begin before and end after an operation is enqueued on `stream`. `entry` has no times yet.
  // Throws DeviceError.
  void begin(const TimelineEntry& entry, void* stream);
  void end(void* stream);
  // Adds the completed operations to the timeline; null: discards them.
  void flush(Timeline* timeline);

 private:
  struct Pending {
    TimelineEntry entry;
    void* begin = nullptr;
    void* end = nullptr;
  };
  void* take_event();
  void add(Timeline& timeline, const Pending& pending);

  CudaShared& shared_;
  std::mutex mutex_;
  std::deque<Pending> pending_;
  std::vector<void*> free_;
};

}  // namespace fasa
