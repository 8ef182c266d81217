#include "runtime/eval/interval.h"

#include <algorithm>
#include <cmath>

namespace fasa {
namespace {

constexpr double kZ = 1.959963984540054;  // of 95 %

}  // namespace

Interval wilson_interval(double right, double asked) {
  if (asked <= 0) return {0, 1};
  const double share = right / asked;
  const double z2 = kZ * kZ;
  const double centre = (share + z2 / (2 * asked)) / (1 + z2 / asked);
  const double half =
      kZ / (1 + z2 / asked) * std::sqrt(share * (1 - share) / asked + z2 / (4 * asked * asked));
  // Rounding must not exclude the measured share from its own interval.
  return {right == 0 ? 0 : centre - half, right == asked ? 1 : centre + half};
}

Interval retained_interval(double lost, double gained, double full, double asked) {
  const double rest = std::max(0.0, asked - full);
  const double scale = rest / full;  // of a share of the rest
  const double loss = lost / full, gain = gained / full;
  const Interval losses = wilson_interval(lost, full);
  Interval gains = rest > 0 ? wilson_interval(std::min(gained, rest), rest) : Interval{0, 0};
  gains = {gains.low * scale, gains.high * scale};
  const double kept = 1 - loss + gain;
  return {std::max(0.0, kept - std::hypot(losses.high - loss, gain - gains.low)),
          kept + std::hypot(loss - losses.low, gains.high - gain)};
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
