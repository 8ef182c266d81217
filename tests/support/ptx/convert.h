// Conversions between types (cvt), for one lane.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/base/dtype.h"
#include "tests/support/ptx/arithmetic.h"
#include "tests/support/ptx/entry.h"

namespace fasa::ptx {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

inline float f32_of(F16 half) { return f32_from_f16(half.bits); }
inline float f32_of(BF16 half) { return f32_from_bf16(half.bits); }
inline F16 f16_of(float x) { return {f16_from_f32(x)}; }
inline BF16 bf16_of(float x) { return {x != x ? uint16_t{0x7fff} : bf16_from_f32(x)}; }
template <typename Half>
Half half_of(float x) {
  if constexpr (std::is_same_v<Half, F16>)
    return f16_of(x);
  else
    return bf16_of(x);
}

inline double to_integer(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero:
      return std::trunc(value);
    case Rounding::kDown:
      return std::floor(value);
    case Rounding::kUp:
      return std::ceil(value);
    default:
      return std::nearbyint(value);
  }
}

// Clamps; NaN is 0, or the lowest number of 64 bits.
template <typename To>
To integer_of(double value, Rounding rounding) {
  using Limits = std::numeric_limits<To>;
  if (value != value) return sizeof(To) == 8 ? static_cast<To>(uint64_t{1} << 63) : To{0};
  value = to_integer(value, rounding);
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<To>(value);
}

template <typename To, typename From>
To converted(From from, const Instruction& in) {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    return static_cast<To>(from);
  } else if constexpr (std::is_integral_v<From>) {
    if constexpr (std::is_floating_point_v<To>)
      return static_cast<To>(from);
    else
      return half_of<To>(static_cast<float>(from));
  } else {
    double value = 0;
    if constexpr (std::is_floating_point_v<From>)
      value = from;
    else
      value = f32_of(from);
    if constexpr (std::is_integral_v<To>) {
      if (in.flushes) value = flushed(static_cast<float>(value));
      return integer_of<To>(value, in.rounding);
    } else {
      if (in.saturates) value = value != value || value < 0 ? 0 : value > 1 ? 1 : value;  // no -0
      if constexpr (std::is_floating_point_v<To>)
        return static_cast<To>(value);
      else
        return half_of<To>(static_cast<float>(value));
    }
  }
}

}  // namespace fasa::ptx
