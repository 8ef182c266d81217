// The rate of a disk, as last measured, and how much of it fits between two steps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

namespace fasa::serve {

class IoRate {
 public:
  using Clock = std::chrono::steady_clock;

  // Bytes that take about `seconds`, from `least` to `most`: `least` before anything was measured,
  // `most` without a limit of time (infinity).
  size_t bytes_in(double seconds, size_t least, size_t most) const {
    if (std::isinf(seconds)) return std::max(least, most);
    const double bytes = std::min(seconds * bytes_per_second_, static_cast<double>(most));
    return std::max(least, static_cast<size_t>(bytes));
  }
  // `bytes` were moved since `begin`.
  void moved(size_t bytes, Clock::time_point begin) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    bytes_per_second_ = static_cast<double>(bytes) / std::max(seconds, 1e-9);
  }

 private:
  double bytes_per_second_ = 0;
};

}  // namespace fasa::serve
