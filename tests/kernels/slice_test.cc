// Packing of slices: the CPU's bytes equal the reference's, a page's codes cover its range, and a
// value that is not finite does not affect other tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/slice_codec.h"
#include "kernels/slice_pack.h"
#include "tests/support/reference/slices.h"

namespace fasa {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Sealed {
  SliceFormat format;
  std::vector<std::byte> tail;
  std::vector<std::byte> page;
  float base = 0;

  float in(int dim, int token) const {
    return reference::slice_value(format.tail(), tail.data(), 0, dim, token);
  }
  float out(int dim, int token) const {
    return reference::slice_value(format, page.data(), base, dim, token);
  }
  float scale(int dim) const {
    uint16_t parameter = 0;
    std::memcpy(&parameter, page.data() + format.code_bytes() + dim * 2, 2);
    return parameter_scale(parameter, base);
  }
};

// Packs with the CPU kernel and the reference, and expects the same bytes.
Sealed seal(SliceFormat format, DType key_dtype, const std::function<float(int, int)>& value) {
  Sealed sealed{format, {}, {}, 0};
  sealed.tail.assign(static_cast<size_t>(format.tail().page_bytes()), std::byte{0xee});
  sealed.page.assign(static_cast<size_t>(format.page_bytes()), std::byte{0xee});
  std::vector<std::byte> tail = sealed.tail;
  std::vector<std::byte> page = sealed.page;
  // The key has twice as many dimensions; the slice takes every other one, backwards.
  std::vector<int16_t> dims(static_cast<size_t>(format.dims));
  for (int d = 0; d < format.dims; ++d) {
    dims[static_cast<size_t>(d)] = static_cast<int16_t>(2 * (format.dims - 1 - d));
  }
  for (int t = 0; t < kPageTokens; ++t) {
    std::vector<std::byte> key(static_cast<size_t>(format.dims) * 8, std::byte{0});
    for (int d = 0; d < format.coded_dims(); ++d) {
      store_element(key_dtype, key.data(), dims[static_cast<size_t>(d)], value(d, t));
    }
    write_tail_token(format.tail(), dims.data(), key_dtype, key.data(), t, sealed.tail.data());
    reference::write_tail_token(format.tail(), dims.data(), key_dtype, key.data(), t, tail.data());
  }
  EXPECT_EQ(sealed.tail, tail);
  float base = 0;
  seal_page(format, sealed.tail.data(), sealed.page.data(), &sealed.base);
  reference::seal_page(format, tail.data(), page.data(), &base);
  EXPECT_EQ(sealed.page, page);
  EXPECT_EQ(sealed.base, base);
  return sealed;
}

class CodedSlices : public ::testing::TestWithParam<SliceDType> {
 protected:
  int top() const { return (1 << slice_bits(GetParam())) - 1; }
};

// Every finite value decodes to within half a scale: the codes cover minimum and maximum.
void expect_covered(const Sealed& sealed) {
  for (int d = 0; d < sealed.format.dims; ++d) {
    for (int t = 0; t < kPageTokens; ++t) {
      const float in = sealed.in(d, t);
      if (!std::isfinite(in)) continue;
      // Rounding of value / scale and of scale * (zero + code), at most 2^15 scales from 0.
      const float slack = std::abs(in) * 1e-6f + 1e-30f;
      ASSERT_NEAR(sealed.out(d, t), in, sealed.scale(d) * 0.5f + slack) << d << " " << t;
    }
  }
}

TEST_P(CodedSlices, GaussianChannelsOfOddCountsAreCoveredTightly) {
  for (const int dims : {2, 6, 10, 16, 34, 64, 126, 128}) {
    std::mt19937 random(static_cast<unsigned>(dims));
    std::normal_distribution<float> normal;
    const Sealed sealed = seal({GetParam(), dims}, DType::kF32, [&](int d, int) {
      return normal(random) * std::exp2(static_cast<float>(d % 5));
    });
    expect_covered(sealed);
    for (int d = 0; d < dims; ++d) {
      float lo = kInfinity;
      float hi = -kInfinity;
      for (int t = 0; t < kPageTokens; ++t) {
        lo = std::min(lo, sealed.in(d, t));
        hi = std::max(hi, sealed.in(d, t));
      }
      // Zeros are multiples of 1/8 code, scales multiples of 1/8 octave: the scale is at most an
      // eighth of the codes and one step above the ideal, range / codes.
      const float ideal = (hi - lo) / static_cast<float>(top() + 1);
      EXPECT_LE(sealed.scale(d), ideal * 1.0906f / 0.875f * 1.001f) << d;
      EXPECT_GE(sealed.scale(d), ideal * 0.999f) << d;
    }
  }
}

TEST_P(CodedSlices, BiasedChannelsKeepTheirSpread) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const Sealed sealed = seal({GetParam(), 32}, DType::kF32, [&](int d, int) {
    return (d % 2 == 0 ? 300.0f : -300.0f) + normal(random);
  });
  expect_covered(sealed);
  // bf16 steps by 2 at 300; the range of 64 such values is 4 to 8.
  for (int d = 0; d < 32; ++d) EXPECT_LE(sealed.scale(d), GetParam() == SliceDType::kInt2 ? 3 : 1);
}

TEST_P(CodedSlices, ConstantAndZeroChannels) {
  const Sealed sealed = seal({GetParam(), 16}, DType::kBF16, [&](int d, int) {
    return d == 0 ? 0.0f : d == 1 ? 7.0f : d == 2 ? -1000.0f : d == 3 ? 1e-30f : 0.125f;
  });
  expect_covered(sealed);
  for (int t = 0; t < kPageTokens; ++t) {
    EXPECT_EQ(sealed.out(0, t), 0.0f);
    EXPECT_NEAR(sealed.out(1, t), 7.0f, 7.0f / 64);
    EXPECT_NEAR(sealed.out(2, t), -1000.0f, 1000.0f / 64);
  }
  const Sealed zeros = seal({GetParam(), 16}, DType::kF32, [](int, int) { return 0.0f; });
  for (int t = 0; t < kPageTokens; ++t) EXPECT_EQ(zeros.out(5, t), 0.0f);
}

TEST_P(CodedSlices, WhatIsNotFiniteSaturatesAndHarmsNobody) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> clean(16 * kPageTokens);
  for (float& x : clean) x = normal(random);
  const auto value = [&](int d, int t) { return clean[static_cast<size_t>(d * kPageTokens + t)]; };
  const Sealed without = seal({GetParam(), 16}, DType::kF32, value);
  const Sealed with = seal({GetParam(), 16}, DType::kF32, [&](int d, int t) {
    if (t == 5 && d == 3) return kInfinity;
    if (t == 6 && d == 3) return -kInfinity;
    if (t == 7 && d == 4) return kNaN;
    return d == 9 ? kNaN : value(d, t);
  });
  expect_covered(with);
  float lo = kInfinity;
  float hi = -kInfinity;
  for (int t = 0; t < kPageTokens; ++t) {
    lo = std::min(lo, with.out(3, t));
    hi = std::max(hi, with.out(3, t));
    EXPECT_TRUE(std::isfinite(with.out(9, t)));
    EXPECT_EQ(with.out(1, t), without.out(1, t));
  }
  EXPECT_EQ(with.out(3, 5), hi);
  EXPECT_EQ(with.out(3, 6), lo);
}

TEST_P(CodedSlices, HugeAndTinyRanges) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const float size : {3.0e38f, 1e30f, 1e-20f, 1e-29f}) {
    const Sealed sealed =
        seal({GetParam(), 8}, DType::kF32, [&](int, int) { return size * uniform(random); });
    expect_covered(sealed);
  }
  // Scales at least eight octaves apart: the small channels are within the largest one's error.
  const Sealed mixed = seal({GetParam(), 8}, DType::kF32, [&](int d, int) {
    return uniform(random) * (d == 0 ? 1000.0f : d == 1 ? 1e-4f : 1.0f);
  });
  expect_covered(mixed);
  EXPECT_LE(mixed.scale(1), mixed.scale(0) / 128);
  const Sealed ends =
      seal({GetParam(), 2}, DType::kF32, [&](int, int t) { return t % 2 == 0 ? kMax : -kMax; });
  for (int t = 0; t < kPageTokens; ++t) {
    EXPECT_FALSE(std::isnan(ends.out(0, t)));
    EXPECT_EQ(ends.out(0, t) > 0, t % 2 == 0);
  }
}

SliceFormat fine_format(int coded, int fine) {
  return {SliceDType::kInt2, coded + fine, SliceOrder::kByGroup, fine};
}

// Both parts of a fine dimension together are what int4 stores: the same scale, zero and code.
TEST(FineSlices, TwoPartsAreOneInt4Code) {
  for (const auto& [coded, fine] : {std::pair{2, 2}, {16, 6}, {34, 16}, {64, 16}, {128, 128}}) {
    std::mt19937 random(static_cast<unsigned>(coded));
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(coded * kPageTokens));
    for (float& x : values) x = normal(random);
    const auto value = [&](int d, int t) {
      return values[static_cast<size_t>(d * kPageTokens + t)] * (d % 3 == 0 ? 8.0f : 1.0f) +
             (d % 5 == 0 ? 40.0f : 0.0f);
    };
    const Sealed both = seal(fine_format(coded, fine), DType::kF32, value);
    const Sealed four = seal({SliceDType::kInt4, coded}, DType::kF32, value);
    const Sealed two = seal({SliceDType::kInt2, coded}, DType::kF32, value);
    for (int d = 0; d < coded; ++d) {
      if (d < fine) {
        EXPECT_EQ(both.scale(d), 4 * four.scale(d)) << d;
        EXPECT_EQ(both.scale(coded + d), four.scale(d)) << d;
      } else {
        EXPECT_EQ(both.scale(d), two.scale(d)) << d;
      }
      for (int t = 0; t < kPageTokens; ++t) {
        const float whole = both.out(d, t) + (d < fine ? both.out(coded + d, t) : 0.0f);
        const float expected = d < fine ? four.out(d, t) : two.out(d, t);
        ASSERT_NEAR(whole, expected, 1e-6f * std::abs(expected)) << d << " " << t;
        ASSERT_EQ(d < fine ? both.in(coded + d, t) : 0.0f, 0.0f);
      }
    }
  }
}

// Scales at the ends of the range, spreads beyond what one base expresses, values not finite.
TEST(FineSlices, ExtremesAreFiniteAndOrdered) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const Sealed ends =
      seal(fine_format(2, 2), DType::kF32, [&](int, int t) { return t % 2 == 0 ? kMax : -kMax; });
  for (int t = 0; t < kPageTokens; ++t) {
    const float whole = ends.out(0, t) + ends.out(2, t);
    EXPECT_FALSE(std::isnan(whole));
    EXPECT_EQ(whole > 0, t % 2 == 0);
  }
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const float small : {1e-4f, 1e-30f, 0.0f}) {
    const Sealed mixed = seal(fine_format(8, 4), DType::kF32, [&](int d, int t) {
      if (d == 1 && t == 7) return kNaN;
      return uniform(random) * (d == 5 ? 1000.0f : small);
    });
    for (int t = 0; t < kPageTokens; ++t) {
      const float whole = mixed.out(0, t) + mixed.out(8, t);
      EXPECT_NEAR(whole, mixed.in(0, t), mixed.scale(5));
      if (small == 0.0f) {
        EXPECT_EQ(whole, 0.0f);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodedSlices,
                         ::testing::Values(SliceDType::kInt8, SliceDType::kInt4, SliceDType::kInt2),
                         [](const auto& test) {
                           return std::string(slice_dtype_name(test.param));
                         });

// Root mean square error of dot products over a page, per dtype, relative to the error with
// unrounded scales (range / (codes - 1)) and zeros (the minimum).
double relative_error(SliceDType dtype, float mean) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  const int top = (1 << slice_bits(dtype)) - 1;
  double ours = 0;
  double ideal = 0;
  for (int page = 0; page < 20; ++page) {
    const Sealed sealed =
        seal({dtype, 32}, DType::kF32, [&](int, int) { return mean + normal(random); });
    std::vector<double> error(kPageTokens);
    std::vector<double> ideal_error(kPageTokens);
    for (int d = 0; d < 32; ++d) {
      const float q = normal(random);
      float lo = kInfinity;
      float hi = -kInfinity;
      for (int t = 0; t < kPageTokens; ++t) {
        lo = std::min(lo, sealed.in(d, t));
        hi = std::max(hi, sealed.in(d, t));
      }
      const float scale = (hi - lo) / static_cast<float>(top);
      for (int t = 0; t < kPageTokens; ++t) {
        const float in = sealed.in(d, t);
        const auto at = static_cast<size_t>(t);
        error[at] += double{q} * (double{in} - sealed.out(d, t));
        ideal_error[at] +=
            double{q} * (double{in} - (lo + scale * std::nearbyint((in - lo) / scale)));
      }
    }
    for (const double x : error) ours += x * x;
    for (const double x : ideal_error) ideal += x * x;
  }
  return std::sqrt(ours / ideal);
}

TEST(SliceCodes, ErrorsAreThoseThatTheFormatPromises) {
  EXPECT_LT(relative_error(SliceDType::kInt2, 0), 0.90);    // measured 0.84
  EXPECT_LT(relative_error(SliceDType::kInt4, 0), 1.10);    // 1.04
  EXPECT_LT(relative_error(SliceDType::kInt8, 0), 1.20);    // 1.14
  EXPECT_LT(relative_error(SliceDType::kInt2, 300), 0.80);  // 0.61
  EXPECT_LT(relative_error(SliceDType::kInt4, 300), 0.95);  // 0.75
}

TEST(PlainSlices, SealingCopiesTheTail) {
  for (const SliceDType dtype : {SliceDType::kF32, SliceDType::kBF16}) {
    for (const DType key : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Sealed sealed =
          seal({dtype, 10}, key, [](int d, int t) { return static_cast<float>(d * 64 + t) / 8; });
      EXPECT_EQ(sealed.page, sealed.tail);
      EXPECT_EQ(sealed.out(3, 9), (3 * 64 + 9) / 8.0f);
    }
  }
}

}  // namespace
}  // namespace fasa
