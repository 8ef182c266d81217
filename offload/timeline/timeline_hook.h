// Where a device's streams find the timeline that records them.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "offload/timeline/timeline.h"

namespace fasa {

class TimelineHook {
 public:
  Timeline* timeline() const { return timeline_.load(std::memory_order_acquire); }
  const std::atomic<Timeline*>& place() const { return timeline_; }
  void set_timeline(Timeline* timeline) {
    const std::lock_guard lock(mutex_);
    if (timeline != nullptr) {
      for (const auto& [stream, name] : names_) timeline->name_stream(stream, name);
    }
    timeline_.store(timeline, std::memory_order_release);
  }

  TimelineStream open_stream(std::string_view name) {
    const std::lock_guard lock(mutex_);
    names_.emplace(next_, name);
    if (timeline() != nullptr) timeline()->name_stream(next_, name);
    return next_++;
  }
  void close_stream(TimelineStream stream) noexcept {
    const std::lock_guard lock(mutex_);
    names_.erase(stream);
  }

 private:
  std::atomic<Timeline*> timeline_{nullptr};
  std::mutex mutex_;
  std::map<TimelineStream, std::string> names_;
  TimelineStream next_ = 0;
};

}  // namespace fasa
