// 95 % confidence intervals of measured values.
#pragma once

#include <cstdint>
#include <span>

namespace fasa {

struct Interval {
  double low = 0, high = 0;
};

// Interval of a share, `right` of `asked` (0 <= right <= asked): Wilson's score interval, which
// stays within [0, 1] and is accurate near both ends. asked = 0: [0, 1].
Interval wilson_interval(int64_t right, int64_t asked);

// Interval of a mean, by the normal distribution with the values' standard deviation; only the mean
// if there are fewer than two values.
Interval mean_interval(std::span<const double> values);

}  // namespace fasa
