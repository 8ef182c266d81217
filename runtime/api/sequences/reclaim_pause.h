// A part of a runtime's work during which it is not asked for memory.
#pragma once

namespace fasa {

// While it lives, the runtime's own allocations take what is free and nothing that it has.
class ReclaimPause {
 public:
  explicit ReclaimPause(bool& paused) : paused_(paused) { paused_ = true; }
  ReclaimPause(const ReclaimPause&) = delete;  // the flag has one owner
  ReclaimPause& operator=(const ReclaimPause&) = delete;
  ~ReclaimPause() { paused_ = false; }

 private:
  bool& paused_;
};

}  // namespace fasa
