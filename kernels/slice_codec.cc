#include "kernels/slice_codec.h"

#include <cmath>

#include "kernels/slice_codec_inl.h"

namespace fasa {

float scale_of_step(int step) { return codec::scale_of_step(step); }

int smallest_scale_step(float lo, float hi, int bits) {
  const double least = codec::min_scale(lo, hi, bits);
  if (least <= 0) return kMinScaleStep;
  const int start = static_cast<int>(std::floor(8 * std::log2(least))) - 1;
  return codec::fitting_step(lo, hi, bits, start);
}

DimCode choose_code(float lo, float hi, int bits, int step, int base_step) {
  return codec::choose_code(lo, hi, bits, step, base_step);
}

int base_step_of(int largest_step) { return codec::base_step_of(largest_step); }

float parameter_scale(uint16_t parameter, float base) {
  const int below = parameter & (kScaleSteps - 1);
  return base * (codec::eighth(below & 7) * codec::power_of_two(-(below >> 3)));
}

float parameter_zero(uint16_t parameter, int bits) {
  return static_cast<float>(static_cast<int16_t>(parameter) >> 6) * codec::power_of_two(bits - 3);
}

}  // namespace fasa
