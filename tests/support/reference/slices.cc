#include "tests/support/reference/slices.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/slice_codec.h"

namespace fasa::reference {
namespace {

// Location of a dimension's code: the byte of a token, and the code's lowest bit in it.
struct CodeLocation {
  size_t byte;
  int bit;
};

CodeLocation location_of(const SliceFormat& format, int dim, int token) {
  const int bits = slice_bits(format.dtype);
  const int unit = 32 / bits;
  return {static_cast<size_t>(format.word_at(dim / unit, token) * 4 + dim % 4),
          dim % unit / 4 * bits};
}

size_t element_of(const SliceFormat& format, int dim, int token) {
  if (format.dtype == SliceDType::kF32) return static_cast<size_t>(dim * kPageTokens + token);
  return static_cast<size_t>((dim / 2 * kPageTokens + token) * 2 + dim % 2);
}

struct Range {
  float lo = 0;
  float hi = 0;
};

// Range of the finite values; others are saturated.
Range range_of(const SliceFormat& tail, const std::byte* page, int dim) {
  Range range;
  bool any = false;
  for (int token = 0; token < kPageTokens; ++token) {
    const float value = reference::slice_value(tail, page, 0, dim, token);
    if (!std::isfinite(value)) continue;
    range.lo = any ? std::min(range.lo, value) : value;
    range.hi = any ? std::max(range.hi, value) : value;
    any = true;
  }
  return range;
}

uint32_t encode(float value, const DimCode& code, int bits) {
  const float top = static_cast<float>((1 << bits) - 1);
  const float scaled = value * code.inverse - code.zero;
  if (!(scaled > 0)) return 0;  // NaN too
  return static_cast<uint32_t>(round_code(std::min(scaled, top)));
}

}  // namespace

void write_tail_token(const SliceFormat& format, const int16_t* slice_dims, DType key_dtype,
                      const void* key, int slot, std::byte* tail_page) {
  for (int dim = 0; dim < format.padded_dims(); ++dim) {
    const bool whole = dim < format.coded_dims();
    const int from = slice_dims == nullptr || !whole ? dim : slice_dims[dim];
    const float value = whole ? load_element(key_dtype, key, from) : 0.0f;
    store_element(format.dtype == SliceDType::kF32 ? DType::kF32 : DType::kBF16, tail_page,
                  static_cast<int64_t>(element_of(format, dim, slot)), value);
  }
}

void seal_page(const SliceFormat& format, const std::byte* tail_page, std::byte* slice_page,
               float* base) {
  const SliceFormat tail = format.tail();
  if (!is_coded(format.dtype)) {
    std::memcpy(slice_page, tail_page, static_cast<size_t>(tail.page_bytes()));
    return;
  }
  std::memset(slice_page, 0, static_cast<size_t>(format.page_bytes()));
  std::vector<Range> ranges;
  std::vector<int> steps;
  int largest = kMinScaleStep;
  for (int dim = 0; dim < format.coded_dims(); ++dim) {
    ranges.push_back(range_of(tail, tail_page, dim));
    steps.push_back(
        smallest_scale_step(ranges.back().lo, ranges.back().hi, whole_bits(format, dim)));
    largest = std::max(largest, stored_step(format, dim, steps.back()));
  }
  const int base_step = base_step_of(largest);
  *base = scale_of_step(base_step);
  for (int dim = 0; dim < format.dims; ++dim) {
    const int from = format.coded_dim(dim);
    const int bits = whole_bits(format, dim);
    const Range& range = ranges[static_cast<size_t>(from)];
    const int step = step_below(format, dim, steps[static_cast<size_t>(from)], base_step);
    const DimCode code = choose_code(range.lo, range.hi, bits, step, base_step);
    const uint16_t parameter = stored_parameter(format, dim, code.parameter);
    std::memcpy(slice_page + format.code_bytes() + dim * 2, &parameter, 2);
    for (int token = 0; token < kPageTokens; ++token) {
      const CodeLocation location = location_of(format, dim, token);
      const float value = reference::slice_value(tail, tail_page, 0, from, token);
      const uint32_t part = stored_code(format, dim, encode(value, code, bits));
      slice_page[location.byte] |= static_cast<std::byte>(part << location.bit);
    }
  }
}

float slice_value(const SliceFormat& format, const std::byte* page, float base, int dim,
                  int token) {
  if (!is_coded(format.dtype)) {
    return load_element(format.dtype == SliceDType::kF32 ? DType::kF32 : DType::kBF16, page,
                        static_cast<int64_t>(element_of(format, dim, token)));
  }
  const int bits = slice_bits(format.dtype);
  const CodeLocation location = location_of(format, dim, token);
  const int code = (static_cast<int>(page[location.byte]) >> location.bit) & ((1 << bits) - 1);
  uint16_t parameter = 0;
  std::memcpy(&parameter, page + format.code_bytes() + dim * 2, 2);
  return parameter_scale(parameter, base) *
         (parameter_zero(parameter, bits) + static_cast<float>(code));
}

}  // namespace fasa::reference
