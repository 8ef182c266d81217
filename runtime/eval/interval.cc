#include "runtime/eval/interval.h"

#include <cmath>

namespace fasa {
namespace {

constexpr double kZ = 1.959963984540054;  // of 95 %

}  // namespace

Interval wilson_interval(int64_t right, int64_t asked) {
  if (asked <= 0) return {0, 1};
  const auto n = static_cast<double>(asked);
  const double share = static_cast<double>(right) / n;
  const double z2 = kZ * kZ;
  const double centre = (share + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kZ / (1 + z2 / n) * std::sqrt(share * (1 - share) / n + z2 / (4 * n * n));
  // Rounding must not exclude the measured share from its own interval.
  return {right == 0 ? 0 : centre - half, right == asked ? 1 : centre + half};
}

Interval mean_interval(std::span<const double> values) {
  if (values.empty()) return {};
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) mean += value / n;
  if (values.size() < 2) return {mean, mean};
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double half = kZ * std::sqrt(squares / (n - 1) / n);
  return {mean - half, mean + half};
}

}  // namespace fasa
