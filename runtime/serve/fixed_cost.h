// What a step costs before its first token, from measured steps of different sizes.
#pragma once

#include <algorithm>
#include <limits>

namespace fasa::serve {

// Weights are read, and unpacked if packed, whatever the number of tokens. It is the intercept of
// the line through the quickest step and the one with the least time per token.
class FixedCost {
 public:
  // `work`: tokens, or what else the rest of the cost is proportional to.
  void measured(double work, double seconds) {
    if (seconds / work < min_per_work_) {
      min_per_work_ = seconds / work;
      many_ = work;
    }
    if (seconds < min_seconds_) {
      min_seconds_ = seconds;
      few_ = work;
    }
  }
  double seconds() const {
    if (few_ >= many_) return 0;  // a line needs two different sizes
    return std::max(0.0, (min_seconds_ - few_ * min_per_work_) * many_ / (many_ - few_));
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  double min_seconds_ = kNone;
  double few_ = 0;  // work of the quickest step
  double min_per_work_ = kNone;
  double many_ = 0;  // work of that step
};

}  // namespace fasa::serve
