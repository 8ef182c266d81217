#include "tests/support/reference/row_codes.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

namespace fasa::reference {
namespace {

// largest / 127 as bf16, at least 2^-126, and the next smaller bf16 if 127 times it would be
// infinite.
float scale_for(float largest) {
  if (!std::isfinite(largest)) return std::numeric_limits<float>::quiet_NaN();
  if (largest == 0) return 0;
  const float exact = std::fmax(largest / 127.0f, std::numeric_limits<float>::min());
  float scale = f32_from_bf16(bf16_from_f32(exact));
  if (std::isinf(127 * scale)) {
    scale = f32_from_bf16(static_cast<uint16_t>(bf16_from_f32(scale) - 1));
  }
  return scale;
}

int parity(const int8_t* codes, int dim, int bit) {
  int sum = 0;
  for (int d = bit; d < dim; d += kScaleBits) sum += codes[d];
  return sum & 1;
}

// Moves the code of this bit with the largest rounding error (the first of equals) to its other
// neighbour; a code of +-127 only if all of the bit's codes are +-127.
void flip(const std::vector<float>& places, int bit, int8_t* codes) {
  const int dim = static_cast<int>(places.size());
  int worst = bit;
  const auto rest = [&](int d) {
    return places[static_cast<size_t>(d)] - static_cast<float>(codes[d]);
  };
  const auto distance = [&](int d) {
    return std::abs(codes[d]) == kLargestCode ? -1.0f : std::fabs(rest(d));
  };
  for (int d = bit; d < dim; d += kScaleBits) {
    if (distance(d) > distance(worst)) worst = d;
  }
  int step = rest(worst) > 0 ? 1 : -1;
  if (rest(worst) == 0) step = codes[worst] > 0 ? -1 : 1;
  if (codes[worst] == 127) step = -1;
  if (codes[worst] == -127) step = 1;
  codes[worst] = static_cast<int8_t>(codes[worst] + step);
}

void encode(const ConstTensorView& from, int64_t index, int dim, int8_t* codes) {
  float largest = 0;
  std::vector<float> values;
  for (int d = 0; d < dim; ++d) {
    values.push_back(load_element(from.dtype, from.data, index + d));
    const float magnitude = std::fabs(values.back());
    if (!(magnitude <= largest)) largest = std::isnan(largest) ? largest : magnitude;
  }
  const float scale = scale_for(largest);
  std::vector<float> places;
  for (int d = 0; d < dim; ++d) {
    const float inverse = 1 / scale;
    places.push_back(scale > 0 ? values[static_cast<size_t>(d)] * inverse : 0.0f);
    codes[d] = static_cast<int8_t>(std::fmin(std::fmax(std::nearbyint(places.back()), -127), 127));
  }
  const int bits = bf16_from_f32(scale);
  for (int b = 0; b < kScaleBits; ++b) {
    if (parity(codes, dim, b) != (bits >> b & 1)) flip(places, b, codes);
  }
}

std::vector<float> read_vector(const RowFormat& format, const std::byte* vector, int dim) {
  std::vector<float> values;
  const auto* codes = reinterpret_cast<const int8_t*>(vector);
  int bits = 0;
  for (int b = 0; b < kScaleBits && format.dtype.is_coded(); ++b) {
    bits |= parity(codes, dim, b) << b;
  }
  const float scale = f32_from_bf16(static_cast<uint16_t>(bits));
  for (int d = 0; d < dim; ++d) {
    values.push_back(format.dtype.is_coded() ? static_cast<float>(codes[d]) * scale
                                             : load_element(format.dtype.elements(), vector, d));
  }
  return values;
}

void write_vector(const RowFormat& format, const ConstTensorView& from, int64_t index, int dim,
                  std::byte* out) {
  if (format.dtype.is_coded()) return encode(from, index, dim, reinterpret_cast<int8_t*>(out));
  for (int d = 0; d < dim; ++d) {
    store_element(format.dtype.elements(), out, d, load_element(from.dtype, from.data, index + d));
  }
}

}  // namespace

void write_row(const RowFormat& format, const ConstTensorView& k, const ConstTensorView& v,
               int64_t token, int64_t head, std::byte* row) {
  std::memset(row, 0, static_cast<size_t>(format.bytes()));
  write_vector(format, k, k.offset(token, head), format.key_dim, row);
  write_vector(format, v, v.offset(token, head), format.value_dim, row + format.key_bytes());
}

std::vector<float> row_key(const RowFormat& format, const std::byte* row) {
  return read_vector(format, row, format.key_dim);
}

std::vector<float> row_value(const RowFormat& format, const std::byte* row) {
  return read_vector(format, row + format.key_bytes(), format.value_dim);
}

}  // namespace fasa::reference
