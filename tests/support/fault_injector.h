// Makes test operations fail: one counter over all points that can fail, in the order in which they
// are reached. An injector is used by one thread at a time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace fasa {

enum class FaultPoint : uint8_t {
  kAllocation,  // of device or host memory
  kCopy,        // refused by the call, or half of its ranges done
  kFill,
  kEvent,      // created, recorded, waited for
  kStream,     // created
  kOperation,  // a kernel, a copy, a fill: when it runs
  kHeap,       // operator new
  kThread,     // started
  kFile,       // opened, read, mapped
};
inline constexpr int kFaultPoints = 9;

class FaultPoints {
 public:
  constexpr FaultPoints() = default;
  constexpr FaultPoints(std::initializer_list<FaultPoint> points) {
    for (const FaultPoint point : points) bits_ |= 1u << static_cast<unsigned>(point);
  }
  static constexpr FaultPoints all() {
    FaultPoints points;
    points.bits_ = (1u << kFaultPoints) - 1;
    return points;
  }
  constexpr bool has(FaultPoint point) const {
    return (bits_ >> static_cast<unsigned>(point) & 1u) != 0;
  }

 private:
  unsigned bits_ = 0;
};

enum class FaultMode : uint8_t {
  kOnce,
  kFromThenOn,  // until lifted
};

class FaultInjector {
 public:
  // The n-th of these points from now on fails (1 = the next).
  void arm(FaultPoints points, int64_t nth, FaultMode mode = FaultMode::kOnce) {
    points_ = points;
    left_ = nth;
    mode_ = mode;
    fired_ = 0;
    passed_ = 0;
  }
  // Ends all faults. Returns the number of failures since arm().
  int64_t lift() {
    left_ = 0;
    return fired_;
  }
  int64_t fired() const { return fired_; }
  int64_t passed() const { return passed_; }  // points of the armed kinds since arm()
  FaultPoint last() const { return last_; }   // the point that failed last

  // Called at every point that can fail: true if it must fail.
  bool fails(FaultPoint point) noexcept {
    if (left_ == 0 || !points_.has(point) || (paused_ > 0 && point != but_)) return false;
    ++passed_;
    if (left_ > 1) {
      --left_;
      return false;
    }
    if (mode_ == FaultMode::kOnce) left_ = 0;
    ++fired_;
    last_ = point;
    return true;
  }

  // While it lives, nothing fails, and no points are counted except those of one kind: for a test's
  // own work. A null injector pauses nothing.
  class Pause {
   public:
    Pause(FaultInjector& injector, FaultPoint but) : Pause(&injector, but) {}
    Pause(FaultInjector* injector, FaultPoint but) : injector_(injector) {
      if (injector_ == nullptr) return;
      ++injector_->paused_;
      injector_->but_ = but;
    }
    Pause(const Pause&) = delete;  // counts once
    Pause& operator=(const Pause&) = delete;
    ~Pause() {
      if (injector_ != nullptr) --injector_->paused_;
    }

   private:
    FaultInjector* injector_;
  };

 private:
  FaultPoints points_;
  FaultMode mode_ = FaultMode::kOnce;
  int64_t left_ = 0;
  int64_t fired_ = 0;
  int64_t passed_ = 0;
  int paused_ = 0;
  FaultPoint but_ = FaultPoint::kOperation;
  FaultPoint last_ = FaultPoint::kAllocation;
};

}  // namespace fasa
