// A stream's operations on their way into a timeline: each between two events, told when these have
// passed. Only while a timeline is set.
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

  // Before an operation is enqueued on `stream`, and after. `entry` lacks times. Throws
  // DeviceError.
  void begin(const TimelineEntry& entry, void* stream);
  void end(void* stream);
  // Adds those to the timeline that have ended; null: they are dropped.
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
