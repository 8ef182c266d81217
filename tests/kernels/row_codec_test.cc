// Coded rows: encoding and decoding, against the reference and the format described in
// row_format.h.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels/cpu/rows/row_bodies.h"
#include "kernels/cpu/rows/row_codec.h"
#include "tests/kernels/row_case.h"
#include "tests/support/reference/row_codes.h"

namespace fasa {
namespace {

using Values = std::vector<float>;

constexpr int kDims[] = {32, 33, 47, 64, 80, 128, 129, 576};

Values random_values(int dim, int seed) {
  Values values;
  for (int d = 0; d < dim; ++d) values.push_back(noise(InputKind::kKey, seed, 0, 0, 0, d));
  return values;
}

// Vectors that random draws miss: zeros, constants, ties, one element that dwarfs the others, the
// limits of f32, NaN and infinities.
std::vector<Values> special_values(int dim) {
  std::vector<Values> all;
  const auto add = [&](const std::function<float(int)>& value) {
    Values values;
    for (int d = 0; d < dim; ++d) values.push_back(value(d));
    all.push_back(values);
  };
  for (const float constant : {0.0f, -0.0f, 1.0f, -1.0f, 127.0f, 0.3f, FLT_MAX, -FLT_MAX, FLT_MIN,
                               FLT_TRUE_MIN, -FLT_TRUE_MIN, 1e-37f}) {
    add([=](int) { return constant; });
    add([=](int d) { return d % 2 == 0 ? constant : -constant; });
    add([=](int d) { return d == dim - 1 ? constant : 0.0f; });
    add([=](int d) { return d == 0 ? constant : 1e-3f * constant; });
  }
  // every element a tie
  add([](int d) { return d == 0 ? 127.0f : static_cast<float>(d % 9) + 0.5f; });
  // every element exact
  add([](int d) { return d == 0 ? -127.0f : static_cast<float>(d % 9 - 4); });
  add([](int d) { return 300.0f + static_cast<float>(d % 3); });  // far from zero
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    add([=](int) { return odd; });
    add([=](int d) { return d == 5 ? odd : 1.0f; });
  }
  return all;
}

std::vector<std::byte> written(const Values& key, const Values& value, bool by_reference) {
  const RowFormat format{RowDType::kInt8, static_cast<int>(key.size()),
                         static_cast<int>(value.size())};
  std::vector<std::byte> row(static_cast<size_t>(format.bytes()), std::byte{0x5A});
  const auto k = ConstTensorView::dense(key.data(), DType::kF32, 1, 1, format.key_dim);
  const auto v = ConstTensorView::dense(value.data(), DType::kF32, 1, 1, format.value_dim);
  (by_reference ? reference::write_row : cpu::write_row)(format, k, v, 0, 0, row.data());
  return row;
}

// The key and the value, decoded.
struct Stored {
  Values key, value;
};
Stored stored(const Values& key, const Values& value) {
  const RowFormat format{RowDType::kInt8, static_cast<int>(key.size()),
                         static_cast<int>(value.size())};
  const std::vector<std::byte> row = written(key, value, false);
  const auto floats = [](const cpu::RowElements& elements, int dim) {
    EXPECT_EQ(elements.dtype, DType::kF32);
    const auto* first = reinterpret_cast<const float*>(elements.data);
    return Values(first, first + dim);
  };
  return {floats(cpu::row_key(format, row.data()), format.key_dim),
          floats(cpu::row_value(format, row.data()), format.value_dim)};
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_as_reference(const Values& key, const Values& value) {
  const RowFormat format{RowDType::kInt8, static_cast<int>(key.size()),
                         static_cast<int>(value.size())};
  const std::vector<std::byte> row = written(key, value, true);
  ASSERT_EQ(written(key, value, false), row);
  const Stored once = stored(key, value);
  EXPECT_EQ(written(once.key, once.value, false), row) << "what a row stands for is another row";
  const Values true_key = reference::row_key(format, row.data());
  const Values true_value = reference::row_value(format, row.data());
  const Stored back = stored(key, value);
  EXPECT_TRUE(same_bits(back.key, true_key));
  EXPECT_TRUE(same_bits(back.value, true_value));
  for (const cpu::Target target : cpu::supported_targets()) {
    const auto expand = cpu::row_bodies(target).expand[RowDType::kInt8];
    Values expanded(key.size(), -7);
    expand(row.data(), format.key_dim, expanded.data());
    EXPECT_TRUE(same_bits(expanded, true_key)) << target_name(target);
    expanded.assign(value.size(), -7);
    expand(row.data() + format.key_bytes(), format.value_dim, expanded.data());
    EXPECT_TRUE(same_bits(expanded, true_value)) << target_name(target);
  }
}

TEST(RowCodecTest, BytesOfARow) {
  EXPECT_EQ((RowFormat{RowDType::kInt8, 128, 128}.bytes()), 256);
  EXPECT_EQ((RowFormat{RowDType::kBF16, 128, 128}.bytes()), 512);
  EXPECT_EQ((RowFormat{RowDType::kInt8, 80, 81}.bytes()), 192);
  EXPECT_EQ((RowFormat{RowDType::kInt8, 80, 81}.key_bytes()), 80);
  EXPECT_TRUE((RowFormat{RowDType::kInt8, 32, 32}.holds_scales()));
  EXPECT_FALSE((RowFormat{RowDType::kInt8, 64, 31}.holds_scales()));
  EXPECT_TRUE((RowFormat{RowDType::kBF16, 2, 2}.holds_scales()));
}

TEST(RowCodecTest, NamesComeBack) {
  for (const RowDType dtype : kRowDTypes) {
    EXPECT_EQ(parse_row_dtype(row_dtype_name(dtype)), dtype);
  }
  EXPECT_FALSE(parse_row_dtype("int4"));
}

TEST(RowCodecTest, SameAsReference) {
  for (const int dim : kDims) {
    for (int seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(::testing::Message() << "dim " << dim << " seed " << seed);
      expect_as_reference(random_values(dim, seed), random_values(144 - dim % 100, seed + 100));
    }
  }
}

TEST(RowCodecTest, SpecialValuesSameAsReference) {
  for (const int dim : kDims) {
    const std::vector<Values> all = special_values(dim);
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "dim " << dim << " case " << i);
      expect_as_reference(all[i], all[(i * 7 + 3) % all.size()]);
    }
  }
}

// Every element is within one step of its code, and the mean square error is the one in
// row_format.h: 1/12 of a step squared, plus the rounding of the scale.
TEST(RowCodecTest, ErrorIsAsSaid) {
  for (const auto& [dim, most] : {std::pair{64, 1.35}, {128, 1.12}}) {
    double sum = 0;
    constexpr int kRows = 400;
    for (int seed = 0; seed < kRows; ++seed) {
      const Values values = random_values(dim, seed);
      const Values back = stored(values, values).key;
      float largest = 0;
      for (const float value : values) largest = std::fmax(largest, std::fabs(value));
      const double step = static_cast<double>(largest) / 127;
      for (size_t d = 0; d < values.size(); ++d) {
        const double error = (static_cast<double>(back[d]) - static_cast<double>(values[d])) / step;
        EXPECT_LT(std::fabs(error), 1.01);  // in steps of the rounded scale
        sum += 12 * error * error / dim / kRows;
      }
    }
    EXPECT_GT(sum, 0.95);
    EXPECT_LT(sum, most) << "dim " << dim;
  }
}

TEST(RowCodecTest, ZerosStayAndWhatIsNoNumberSpreads) {
  const Values zeros(64, 0.0f);
  const Stored back = stored(zeros, zeros);
  EXPECT_TRUE(same_bits(back.key, zeros));
  EXPECT_EQ(written(zeros, zeros, false), std::vector<std::byte>(128));
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    Values spoilt = random_values(64, 3);
    spoilt[17] = odd;
    const Stored one = stored(spoilt, zeros);
    for (const float value : one.key) EXPECT_TRUE(std::isnan(value));
    EXPECT_TRUE(same_bits(one.value, zeros));
  }
}

TEST(RowCodecTest, EndsOfTheRange) {
  const Stored huge = stored(Values(32, FLT_MAX), Values(32, -FLT_MAX));
  for (const float value : huge.key) EXPECT_NEAR(value / FLT_MAX, 1, 0.02);
  for (const float value : huge.value) EXPECT_NEAR(value / FLT_MAX, -1, 0.02);
  const Stored tiny = stored(Values(32, FLT_TRUE_MIN), Values(32, FLT_MIN * 100));
  for (const float value : tiny.key) EXPECT_LE(std::fabs(value), FLT_MIN);
  for (const float value : tiny.value) EXPECT_NEAR(value / FLT_MIN, 100, 1);
}

}  // namespace
}  // namespace fasa
