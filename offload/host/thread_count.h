// The number of threads of the CPU kernels.
#pragma once

#include <tbb/global_control.h>

#include <optional>

namespace fasa {

// Limits oneTBB to `threads` during its lifetime. Also allows more threads than cores.
class ThreadCount {
 public:
  // 0: all cores available to the process, by its affinity mask and control group. Throws
  // UsageError outside 0 to kMax.
  explicit ThreadCount(int threads);
  int value() const { return value_; }

  static constexpr int kMax = 1024;

 private:
  int value_;
  std::optional<tbb::global_control> more_than_cores_;
};

}  // namespace fasa
