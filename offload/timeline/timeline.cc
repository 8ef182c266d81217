#include "offload/timeline/timeline.h"

#include <algorithm>
#include <new>

namespace fasa {

void Timeline::name_stream(TimelineStream stream, std::string_view name) {
  const std::lock_guard lock(mutex_);
  streams_[stream] = std::string(name);
}

void Timeline::add(const TimelineEntry& entry) {
  const std::lock_guard lock(mutex_);
  if (!unresolved_.empty()) resolve_sample(entry);
  if (size_ == max_) {
    ++dropped_;
    return;
  }
  if (size_ == chunks_.size() * kChunk) chunks_.push_back(std::make_unique<Chunk>());
  (*chunks_[size_ / kChunk])[size_ % kChunk] = entry;
  ++size_;
}

// A stream's operations end in the order in which they ran: the oldest value is this entry's.
void Timeline::resolve_sample(const TimelineEntry& entry) {
  const auto found =
      std::find_if(unresolved_.begin(), unresolved_.end(),
                   [&](const TimelineSample& sample) { return sample.name == entry.name; });
  if (found == unresolved_.end()) return;
  found->seconds = entry.span.end;
  store_sample(*found);
  unresolved_.erase(found);
}

void Timeline::store_sample(const TimelineSample& sample) {
  if (samples_.size() == max_) {
    ++dropped_;
    return;
  }
  samples_.push_back(sample);
}

// Called by code that allocates and frees memory: it must not fail if there is no memory for the
// sample.
void Timeline::sample(const char* name, double seconds, double value) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    store_sample({name, seconds, value});
  } catch (const std::bad_alloc&) {
    ++dropped_;
  }
}

void Timeline::sample_operation(const char* name, double value) {
  const std::lock_guard lock(mutex_);
  unresolved_.push_back({name, 0, value});
}

size_t Timeline::size() const {
  const std::lock_guard lock(mutex_);
  return size_;
}

std::vector<TimelineEntry> Timeline::entries(size_t first) const {
  const std::lock_guard lock(mutex_);
  std::vector<TimelineEntry> all;
  if (first >= size_) return all;
  all.reserve(size_ - first);
  for (size_t i = first; i < size_; ++i) all.push_back((*chunks_[i / kChunk])[i % kChunk]);
  return all;
}

std::vector<TimelineSample> Timeline::samples() const {
  const std::lock_guard lock(mutex_);
  return samples_;
}

std::map<TimelineStream, std::string> Timeline::streams() const {
  const std::lock_guard lock(mutex_);
  return streams_;
}

uint64_t Timeline::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void Timeline::clear() {
  const std::lock_guard lock(mutex_);
  chunks_.clear();
  size_ = 0;
  dropped_ = 0;
  samples_.clear();
}

}  // namespace fasa
