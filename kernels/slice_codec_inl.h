// How slice_codec.h chooses codes, for hosts and devices: no library calls.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/slice_codec.h"

namespace fasa::codec {

// Powers of two and rounding without library calls: packing would make thousands per page.
constexpr float power_of_two(int exponent) {  // of a normal number
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}
constexpr double round_even(double x) {          // |x| < 2^51
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52
  return (x + kMagic) - kMagic;
}
constexpr float eighth(int index) {  // 2^(-index / 8)
  constexpr float kEighths[8] = {1.0f,         0.917004043f, 0.840896415f, 0.771105413f,
                                 0.707106781f, 0.648419777f, 0.594603558f, 0.545253866f};
  return kEighths[index];
}

constexpr float scale_of_step(int step) {
  const int octave = (step + 8 * 1024 + 7) / 8 - 1024;  // rounded up
  return eighth(octave * 8 - step) * power_of_two(octave);
}

struct Fit {
  float inverse;
  int n;
  bool fits;
};

// The zero that centres [lo, hi] in the codes: if any zero fits at this scale, the one nearest to
// the centre does, because those that fit lie symmetrically around it.
constexpr Fit fit_at(float lo, float hi, int bits, int step) {
  const float inverse = 1.0f / scale_of_step(step);
  const float first = lo * inverse;
  const float last = hi * inverse;
  const float top = static_cast<float>((1 << bits) - 1);
  const float unit = power_of_two(bits - 3);
  // Units and grids are powers of two: products with their reciprocals are exact.
  const double centre =
      (static_cast<double>(first) + last - top) * static_cast<double>(power_of_two(2 - bits));
  // A constant channel gets whole codes, so that a channel of zeros stays zero.
  const bool whole = lo == hi && unit < 1;
  const double grid = whole ? static_cast<double>(power_of_two(3 - bits)) : 1.0;
  const double per_grid = whole ? static_cast<double>(unit) : 1.0;
  const double n = round_even(std::clamp(centre, -512.0, 512.0 - grid) * per_grid) * grid;
  const float zero = static_cast<float>(n) * unit;
  // Values half a code out of range round to even: to 0 at the low end, out of the codes at the
  // high end.
  const bool fits = first - zero >= -0.5f && last - zero < top + 0.5f;
  return {inverse, static_cast<int>(n), fits};
}

// A lower bound of the scales that can fit: the range must fit the codes, and the centre the zeros.
constexpr double min_scale(float lo, float hi, int bits) {
  const double top = (1 << bits) - 1;
  const double unit = power_of_two(bits - 3);
  const double range = (static_cast<double>(hi) - lo) * static_cast<double>(power_of_two(-bits));
  const double sum = static_cast<double>(hi) + lo;
  const double centre = (sum < 0 ? -sum : sum) * 0.5 / (512 * unit + top);
  return std::max(range, centre);
}

// The first step from `start` on that fits.
constexpr int fitting_step(float lo, float hi, int bits, int start) {
  // Not std::max: it takes references, and device code has no address of a constant.
  int step = start < kMinScaleStep ? kMinScaleStep : start;
  while (step < kMaxScaleStep && !fit_at(lo, hi, bits, step).fits) ++step;
  return step < kMaxScaleStep ? step : kMaxScaleStep;
}

constexpr DimCode choose_code(float lo, float hi, int bits, int step, int base_step) {
  const Fit fit = fit_at(lo, hi, bits, step);
  DimCode code;
  code.inverse = fit.inverse;
  code.zero = static_cast<float>(fit.n) * power_of_two(bits - 3);
  code.parameter = static_cast<uint16_t>((static_cast<uint32_t>(fit.n) << 6) |
                                         static_cast<uint32_t>(base_step - step));
  return code;
}

constexpr int base_step_of(int largest_step) {
  return (largest_step + 8 * 1024 + 7) / 8 * 8 - 8 * 1024;
}

}  // namespace fasa::codec
