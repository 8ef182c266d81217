// Something that is done over and over, while each thing in it that can fail does so in its turn:
// the first, the second, ... until nothing fails any more. Once, and from then on until lifted.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "tests/support/fault_injector.h"

namespace fasa::testing {

class FaultCase {
 public:
  virtual ~FaultCase() = default;
  // Before each call; nothing fails in it.
  virtual void prepare() {}
  // Throws what the product throws.
  virtual void call() = 0;
  // Checks a call that threw: the error is of the kind that such a fault has, and names what
  // failed. This one and those that follow fail by gtest's expectations.
  virtual void check_error(FaultPoint point, const std::exception& error);
  // After a call that threw: everything is as it was.
  virtual void check_unchanged() = 0;
  // After a call that went through, perhaps with a fault that it got over.
  virtual void check_done() = 0;
  // The call and prepare() are undone.
  virtual void undo() = 0;
};

struct FaultCount {
  int64_t injected = 0;  // faults that were met
  int64_t thrown = 0;    // of them, those that came out as an error; the others were got over
  int64_t points = 0;    // places that can fail, in one call
  FaultCount& operator+=(const FaultCount& other) {
    injected += other.injected;
    thrown += other.thrown;
    points += other.points;
    return *this;
  }
};

// Every `stride`-th place, beginning with `first`.
struct FaultPlan {
  FaultPoints points;
  FaultMode mode = FaultMode::kOnce;
  int64_t first = 1;
  int64_t stride = 1;
};

FaultCount inject_faults(const std::string& name, FaultInjector& injector, FaultCase& fault_case,
                         const FaultPlan& plan);

// FASA_LONG=1: every place; else one of `usual`, a different one for each fault case.
FaultPlan planned(const std::string& name, FaultPoints points, FaultMode mode, int64_t usual);

}  // namespace fasa::testing
