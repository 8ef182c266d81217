// A fault case is called repeatedly, and each point that can fail fails in turn: the first, the
// second, ... until none fails any more. Each point fails once, and then again with all later
// points until lifted.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "tests/support/fault_injector.h"

namespace fasa::testing {

class FaultCase {
 public:
  virtual ~FaultCase() = default;
  // Called before each call, without faults.
  virtual void prepare() {}
  // May throw only errors of the product.
  virtual void call() = 0;
  // Checks the error of a call that threw: its kind fits the fault, and its message names what
  // failed. This and the following functions report by gtest's expectations.
  virtual void check_error(FaultPoint point, const std::exception& error);
  // After a call that threw: checks that nothing has changed.
  virtual void check_unchanged() = 0;
  // After a call that succeeded, perhaps despite a fault.
  virtual void check_done() = 0;
  // Undoes the call and prepare().
  virtual void undo() = 0;
};

struct FaultCount {
  int64_t injected = 0;  // faults that occurred
  int64_t thrown = 0;    // faults that surfaced as an error; the others were handled
  int64_t points = 0;    // points that can fail, in one call
  FaultCount& operator+=(const FaultCount& other) {
    injected += other.injected;
    thrown += other.thrown;
    points += other.points;
    return *this;
  }
};

// Every `stride`-th point, beginning with `first`.
struct FaultPlan {
  FaultPoints points;
  FaultMode mode = FaultMode::kOnce;
  int64_t first = 1;
  int64_t stride = 1;
};

FaultCount inject_faults(const std::string& name, FaultInjector& injector, FaultCase& fault_case,
                         const FaultPlan& plan);

// FASA_LONG=1: every point; else one in `usual`, with a different offset for each fault case.
FaultPlan planned(const std::string& name, FaultPoints points, FaultMode mode, int64_t usual);

}  // namespace fasa::testing
