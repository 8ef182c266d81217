// How a coded row's scale and codes are chosen (row_format.h defines them), for hosts and devices:
// no library calls.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/row_format.h"
#include "kernels/slice_codec.h"

namespace fasa::codec {

inline constexpr uint32_t kInfiniteBits = 0x7f800000u;
inline constexpr uint16_t kNotAScale = 0x7fc0u;  // NaN

// The scale of a vector, as bf16, by the bits of its largest magnitude.
constexpr uint16_t row_scale(uint32_t largest_bits) {
  if (largest_bits == 0) return 0;
  if (largest_bits >= kInfiniteBits) return kNotAScale;
  const float exact = std::bit_cast<float>(largest_bits) / static_cast<float>(kLargestCode);
  const uint32_t bits = bf16_from_f32(exact);
  constexpr uint32_t kSmallest = 0x0080u;  // 2^-126
  constexpr uint32_t kLargest =
      std::bit_cast<uint32_t>(0x1.fffffep127f / static_cast<float>(kLargestCode)) >> 16;
  if (bits < kSmallest) return kSmallest;
  return static_cast<uint16_t>(bits > kLargest ? kLargest : bits);
}

// Factor of the elements; 0 if all codes are 0 apart from the scale's bits.
constexpr float row_inverse(uint16_t scale) {
  if (scale == 0 || scale == kNotAScale) return 0;
  return 1.0f / f32_from_bf16(scale);
}

struct RowCode {
  float code = 0;
  float rest = 0;  // exact quotient less the code
};
constexpr RowCode row_code(float value, float inverse) {
  constexpr auto kTop = static_cast<float>(kLargestCode);
  const float product = value * inverse;
  const float place = product == product ? product : 0.0f;  // NaN only if inverse is 0
  const float code = round_code(place);
  const float below = code < kTop ? code : kTop;
  const float within = below > -kTop ? below : -kTop;
  return {within, place - within};
}
// Preference for moving a code to fix a parity: the largest is moved.
constexpr float row_code_distance(const RowCode& of) {
  constexpr auto kTop = static_cast<float>(kLargestCode);
  const float rest = of.rest < 0 ? -of.rest : of.rest;
  const float magnitude = of.code < 0 ? -of.code : of.code;
  return magnitude < kTop ? rest : -0.5f;
}

// Step from a code to its other neighbour: towards the exact quotient, or towards zero if the code
// is exact; never out of the codes' range.
constexpr int other_neighbour(const RowCode& of) {
  constexpr auto kTop = static_cast<float>(kLargestCode);
  const bool above = of.rest > 0 || (of.rest == 0 && of.code <= 0);
  return (above && of.code < kTop) || of.code <= -kTop ? 1 : -1;
}

}  // namespace fasa::codec
