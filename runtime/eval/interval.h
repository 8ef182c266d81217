// 95 % intervals of what an evaluation measured.
#pragma once

#include <cstdint>
#include <span>

namespace fasa {

struct Interval {
  double low = 0, high = 0;
};

// Of a share, `right` of `asked` (0 <= right <= asked): Wilson's score interval, which stays within
// [0, 1] and is honest near both ends. Nothing asked: [0, 1].
Interval wilson_interval(int64_t right, int64_t asked);

// Of a mean, by the normal distribution with the values' own deviation; the mean alone where there
// are fewer than two values.
Interval mean_interval(std::span<const double> values);

}  // namespace fasa
