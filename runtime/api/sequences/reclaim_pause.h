// A scope in which the runtime does not free memory on request.
#pragma once

namespace fasa {

// While it lives, the runtime's own allocations use free memory only and reclaim nothing of its
// own.
class ReclaimPause {
 public:
  explicit ReclaimPause(bool& paused) : paused_(paused), before_(paused) { paused_ = true; }
  ReclaimPause(const ReclaimPause&) = delete;  // the flag has one owner
  ReclaimPause& operator=(const ReclaimPause&) = delete;
  ~ReclaimPause() { paused_ = before_; }

 private:
  bool& paused_;
  const bool before_;
};

}  // namespace fasa
