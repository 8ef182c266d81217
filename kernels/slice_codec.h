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

// How a page's dimensions are stored, `dim` being a stored one: fine ones (SliceFormat::fine) in
// two parts, others in one.
inline constexpr int kFineSteps = 16;  // scale steps between the parts: a factor of four

constexpr bool is_fine(const SliceFormat& format, int dim) {
  return format.coded_dim(dim) < format.fine;
}
// Bits of the whole code.
constexpr int whole_bits(const SliceFormat& format, int dim) {
  return is_fine(format, dim) ? 2 * slice_bits(format.dtype) : slice_bits(format.dtype);
}
// The largest scale step among the parts of a code at `step`.
constexpr int stored_step(const SliceFormat& format, int dim, int step) {
  const int largest = is_fine(format, dim) ? step + kFineSteps : step;
  return largest < kMaxScaleStep ? largest : kMaxScaleStep;
}
// The step of a whole code, so near to `step` that the page's base can express all parts.
constexpr int step_below(const SliceFormat& format, int dim, int step, int base_step) {
  const int least = base_step - kScaleSteps + 1;
  const int most = is_fine(format, dim) ? base_step - kFineSteps : base_step;
  return step < least ? least : step > most ? most : step;
}
// The part of a whole code, and of its parameter, that a dimension holds.
constexpr uint32_t stored_code(const SliceFormat& format, int dim, uint32_t code) {
  if (!is_fine(format, dim)) return code;
  const int bits = slice_bits(format.dtype);
  return dim < format.fine ? code >> bits : code & ((1u << bits) - 1);
}
constexpr uint16_t stored_parameter(const SliceFormat& format, int dim, uint16_t parameter) {
  if (!is_fine(format, dim)) return parameter;
  return static_cast<uint16_t>(dim < format.fine ? parameter - kFineSteps
                                                 : parameter & (kScaleSteps - 1));
}

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
