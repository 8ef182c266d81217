// How many threads the CPU's kernels may use.
#pragma once

#include <tbb/global_control.h>

#include <optional>

namespace fasa {

// Holds oneTBB to `threads` while it lives: more than the process has cores needs its leave.
class ThreadCount {
 public:
  // 0 = all cores that the process may run on (its affinity mask is respected). Throws UsageError
  // outside 0 to kMax.
  explicit ThreadCount(int threads);
  int value() const { return value_; }

  static constexpr int kMax = 1024;

 private:
  int value_;
  std::optional<tbb::global_control> more_than_cores_;
};

}  // namespace fasa
