// How a dimension's scale and zero are chosen and read: one definition for every packer and scorer
// in plain C++ (slice_format.h defines the format). Not for files compiled for one instruction set.
#pragma once

#include <cstdint>

#include "kernels/slice_format.h"

namespace fasa {

// Scales are 2^(step / 8). The minimum keeps reciprocals and products normal: smaller values are 0.
inline constexpr int kMinScaleStep = -100 * 8;
inline constexpr int kMaxScaleStep = 127 * 8;
inline constexpr int kScaleSteps =
    64;  // scale steps below the base that a parameter's six bits can express

float scale_of_step(int step);

// x to code: round_code(x * (1 / scale) - zero), in f32, saturated; NaN gives 0.
struct DimCode {
  float inverse = 1;  // 1 / scale
  float zero = 0;     // n * 2^(bits - 3)
  uint16_t parameter = 0;
};

// The smallest scale step for which a zero exists that keeps lo and hi (finite) within the codes
// after rounding.
int smallest_scale_step(float lo, float hi, int bits);

// Scale and zero at `step`, in a page whose base is 2^(base_step / 8), base_step a multiple of 8.
// `step` >= smallest_scale_step(); base_step - step < kScaleSteps.
DimCode choose_code(float lo, float hi, int bits, int step, int base_step);

// The power-of-two base for the largest step of a page, as a multiple of 8.
int base_step_of(int largest_step);

// scale and n * 2^(bits - 3) of a stored parameter.
float parameter_scale(uint16_t parameter, float base);
float parameter_zero(uint16_t parameter, int bits);

// Rounds to nearest, ties to even, for |x| < 2^22; every packer rounds by exactly this sum.
constexpr float round_code(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return (x + kMagic) - kMagic;
}

}  // namespace fasa
