#include "runtime/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace fasa {
namespace {

bool is_nan16(uint16_t bits, int fraction_bits) {
  const auto fraction = static_cast<uint16_t>((1u << fraction_bits) - 1);
  const auto exponent = static_cast<uint16_t>(0x7fffu & ~fraction);
  return (bits & exponent) == exponent && (bits & fraction) != 0;
}

// The value of an f16 bit pattern, computed from the format's definition.
double f16_by_definition(uint16_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 0x3ff;
  if (exponent == 31) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f32_from_bf16(half);
    if (is_nan16(half, 7)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(is_nan16(bf16_from_f32(value), 7));
    } else {
      ASSERT_EQ(bf16_from_f32(value), half);
    }
  }
}

TEST(F16, EveryValueIsThatOfItsDefinitionAndSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f32_from_f16(half);
    if (is_nan16(half, 10)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(is_nan16(f16_from_f32(value), 10));
    } else {
      ASSERT_EQ(static_cast<double>(value), f16_by_definition(half)) << bits;
      ASSERT_EQ(std::signbit(value), (half & 0x8000u) != 0);
      ASSERT_EQ(f16_from_f32(value), half);
    }
  }
}

// Between two adjacent values the nearer one is the result; the midpoint rounds to even.
template <typename FromBits, typename ToBits>
void check_rounding(uint16_t infinity, FromBits from_bits, ToBits to_bits) {
  for (uint16_t low = 0; low + 1 < infinity; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const double a = from_bits(low), b = from_bits(high);
    const auto middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(static_cast<double>(middle), (a + b) / 2);  // exact in f32
    const uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(to_bits(middle), even) << low;
    ASSERT_EQ(to_bits(std::nextafter(middle, 0.0f)), low) << low;
    ASSERT_EQ(to_bits(std::nextafter(middle, std::numeric_limits<float>::max())), high) << low;
    ASSERT_EQ(to_bits(-middle), even | 0x8000u) << low;
  }
}

TEST(Bf16, RoundsToNearestEven) { check_rounding(0x7f80, f32_from_bf16, bf16_from_f32); }
TEST(F16, RoundsToNearestEven) { check_rounding(0x7c00, f32_from_f16, f16_from_f32); }

TEST(F16, OverflowsToInfinity) {
  EXPECT_EQ(f16_from_f32(65504.0f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65519.996f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f16_from_f32(-1e30f), 0xfc00);
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(f16_from_f32(std::ldexp(1.0f, -25)), 0);  // the midpoint rounds to even
  EXPECT_EQ(f16_from_f32(std::nextafter(std::ldexp(1.0f, -25), 1.0f)), 1);
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(Bf16, OverflowsToInfinity) {
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::lowest()), 0xff80);
}

TEST(Element, LoadsWhatWasStored) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<std::byte> data(static_cast<size_t>(3 * dtype_bytes(dtype)));
    for (int i = 0; i < 3; ++i) store_element(dtype, data.data(), i, 1.5f - static_cast<float>(i));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(load_element(dtype, data.data(), i), 1.5f - static_cast<float>(i));
    }
  }
}

TEST(DTypeName, IsParsedBack) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_FALSE(parse_dtype("fp16").has_value());
  EXPECT_FALSE(parse_dtype("").has_value());
}

}  // namespace
}  // namespace fasa
