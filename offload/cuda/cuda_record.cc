#include "offload/cuda/cuda_record.h"

namespace fasa {
namespace {

// Shorter waits are not reported: this is the resolution of two timestamps.
constexpr double kNoWait = 2e-6;

}  // namespace

CudaRecord::~CudaRecord() {
  for (const Pending& pending : pending_) {
    free_.push_back(pending.begin);
    if (pending.end != nullptr) free_.push_back(pending.end);
  }
  for (void* event : free_) {
    if (shared_.calls.destroy_event(event) != cuda_status::kSuccess)
      shared_.calls.take_last_error();
  }
}

void* CudaRecord::take_event() {
  void* event = nullptr;
  if (free_.empty()) {
    shared_.check(shared_.calls.create_event(&event), {"cudaEventCreate"});
    return event;
  }
  event = free_.back();
  free_.pop_back();
  return event;
}

void CudaRecord::begin(const TimelineEntry& entry, void* stream) {
  const std::lock_guard lock(mutex_);
  Pending pending{entry, take_event(), nullptr};
  pending.entry.enqueued = shared_.clock.host_seconds();
  shared_.check(shared_.calls.record(pending.begin, stream), {"cudaEventRecord"});
  pending_.push_back(pending);
}

void CudaRecord::end(void* stream) {
  const std::lock_guard lock(mutex_);
  pending_.back().end = take_event();
  shared_.check(shared_.calls.record(pending_.back().end, stream), {"cudaEventRecord"});
}

void CudaRecord::add(Timeline& timeline, const Pending& pending) {
  TimelineEntry entry = pending.entry;
  entry.span = {shared_.clock.seconds_at(pending.begin), shared_.clock.seconds_at(pending.end)};
  if (entry.kind == TimelineEntry::Kind::kWait && entry.span.seconds() < kNoWait) return;
  const TimeSpan nothing{entry.span.start, entry.span.start};
  entry.link = {entry.work.h2d_bytes > 0 ? entry.span : nothing,
                entry.work.d2h_bytes > 0 ? entry.span : nothing};
  timeline.add(entry);
}

void CudaRecord::flush(Timeline* timeline) {
  const std::lock_guard lock(mutex_);
  if (pending_.empty()) return;
  const CudaGpuScope scope = shared_.enter();  // the clock may create an event
  while (!pending_.empty()) {
    const Pending pending = pending_.front();
    if (pending.end != nullptr) {
      const CudaStatus status = shared_.calls.query_event(pending.end);
      if (status == cuda_status::kNotReady) return;
      shared_.check(status, {"cudaEventQuery"});
      if (timeline != nullptr) add(*timeline, pending);
      free_.push_back(pending.end);
    }
    free_.push_back(pending.begin);
    pending_.pop_front();
  }
}

}  // namespace fasa
