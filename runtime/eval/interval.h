// 95 % confidence intervals of measured values.
#pragma once

#include <cstdint>
#include <span>

namespace fasa {

struct Interval {
  double low = 0, high = 0;
};

// Interval of a share, `right` of `asked` (0 <= right <= asked), which may be sums of shares:
// Wilson's score interval, which stays within [0, 1] and is accurate near both ends. asked = 0:
// [0, 1].
Interval wilson_interval(double right, double asked);

// Interval of a share of points kept, 1 - lost / full + gained / full, for a method that lost some
// of the `full` > 0 points of a reference and gained some of the `asked` - `full` others. Wilson's
// intervals of both shares, joined by Newcombe's square-and-add rule (Statistics in Medicine 17,
// 1998): not empty where neither was seen.
Interval retained_interval(double lost, double gained, double full, double asked);

// Interval of a mean, by the normal distribution with the values' standard deviation; only the mean
// if there are fewer than two values.
Interval mean_interval(std::span<const double> values);

}  // namespace fasa
