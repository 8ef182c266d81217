// Plain loops over the 64 tokens of a page, written so that the compiler vectorises them: packing
// runs once per page and is no bottleneck, so it needs no body per instruction set.
#include "kernels/slice_pack.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>
#include <vector>

#include "kernels/slice_codec.h"

namespace fasa {
namespace {

// Maps a float's bits to an integer of the same order; its own inverse.
int32_t ordered(int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

// Bits of one dimension's 64 values from a bf16 tail page [dim / 2][64][2].
void load_dim(const std::byte* tail_page, int dim, int32_t* bits) {
  uint32_t pairs[kPageTokens];
  std::memcpy(pairs, tail_page + dim / 2 * kPageTokens * 4, sizeof(pairs));
  if (dim % 2 == 0) {
    for (int t = 0; t < kPageTokens; ++t) bits[t] = static_cast<int32_t>(pairs[t] << 16);
  } else {
    for (int t = 0; t < kPageTokens; ++t) bits[t] = static_cast<int32_t>(pairs[t] & 0xffff0000u);
  }
}

struct Range {
  float lo = 0;
  float hi = 0;
};

// Range of the finite values.
Range range_of(const int32_t* bits) {
  int32_t lo = INT_MAX;
  int32_t hi = INT_MIN;
  for (int t = 0; t < kPageTokens; ++t) {
    const bool finite = (bits[t] & 0x7f800000) != 0x7f800000;
    const int32_t key = ordered(bits[t]);
    const int32_t low_key = finite ? key : INT_MAX;
    const int32_t high_key = finite ? key : INT_MIN;
    lo = low_key < lo ? low_key : lo;
    hi = high_key > hi ? high_key : hi;
  }
  if (lo > hi) return {};
  return {std::bit_cast<float>(ordered(lo)), std::bit_cast<float>(ordered(hi))};
}

// Adds what stored dimension `dim` holds of its values' codes to the lanes of its group, `shift`
// bits up.
void encode_dim(const SliceFormat& format, int dim, const int32_t* bits, const DimCode& code,
                int shift, uint32_t* lanes) {
  const float top = static_cast<float>((1 << whole_bits(format, dim)) - 1);
  const bool fine = is_fine(format, dim);
  const int part = slice_bits(format.dtype);
  const int down = fine && dim < format.fine ? part : 0;
  const uint32_t mask = fine ? (1u << part) - 1 : ~0u;
  for (int t = 0; t < kPageTokens; ++t) {
    float place = std::bit_cast<float>(bits[t]) * code.inverse - code.zero;
    place = place > 0 ? place : 0.0f;  // NaN too
    place = place < top ? place : top;
    const auto whole = static_cast<uint32_t>(static_cast<int32_t>(round_code(place)));
    lanes[t] |= (whole >> down & mask) << shift;
  }
}

}  // namespace

std::vector<int16_t> stored_dims(const SliceFormat& format, const std::vector<int16_t>& coded) {
  if (format.fine == 0) return coded;
  std::vector<int16_t> dims;
  for (auto head = coded.begin(); head != coded.end(); head += format.coded_dims()) {
    dims.insert(dims.end(), head, head + format.coded_dims());
    dims.insert(dims.end(), head, head + format.fine);
  }
  return dims;
}

void write_tail_token(const SliceFormat& format, const int16_t* slice_dims, DType key_dtype,
                      const void* key, int slot, std::byte* tail_page) {
  const auto element = [slice_dims](int dim) {
    return slice_dims == nullptr ? dim : slice_dims[dim];
  };
  if (format.dtype == SliceDType::kF32) {
    float* out = reinterpret_cast<float*>(tail_page) + slot;
    for (int dim = 0; dim < format.padded_dims(); ++dim, out += kPageTokens) {
      *out = dim < format.coded_dims() ? load_element(key_dtype, key, element(dim)) : 0.0f;
    }
    return;
  }
  uint16_t* out = reinterpret_cast<uint16_t*>(tail_page) + slot * 2;
  for (int dim = 0; dim < format.padded_dims(); ++dim) {
    uint16_t* to = out + dim / 2 * kPageTokens * 2 + dim % 2;
    if (dim >= format.coded_dims()) {
      *to = 0;
    } else if (key_dtype == DType::kBF16) {
      *to = static_cast<const uint16_t*>(key)[element(dim)];
    } else {
      *to = bf16_from_f32(load_element(key_dtype, key, element(dim)));
    }
  }
}

void seal_page(const SliceFormat& format, const std::byte* tail_page, std::byte* slice_page,
               float* base) {
  if (!is_coded(format.dtype)) {
    std::memcpy(slice_page, tail_page, static_cast<size_t>(format.tail().page_bytes()));
    return;
  }
  struct Choice {
    Range range;
    int step = 0;
  };
  thread_local std::vector<Choice> choices;  // grows only: no allocation while decoding
  choices.resize(static_cast<size_t>(format.coded_dims()));
  int32_t bits[kPageTokens];
  int largest = kMinScaleStep;
  for (int dim = 0; dim < format.coded_dims(); ++dim) {
    load_dim(tail_page, dim, bits);
    Choice& choice = choices[static_cast<size_t>(dim)];
    choice.range = range_of(bits);
    choice.step = smallest_scale_step(choice.range.lo, choice.range.hi, whole_bits(format, dim));
    largest = std::max(largest, stored_step(format, dim, choice.step));
  }
  const int base_step = base_step_of(largest);
  *base = scale_of_step(base_step);

  std::byte* parameters = slice_page + format.code_bytes();
  std::memset(parameters, 0, static_cast<size_t>(format.page_bytes() - format.code_bytes()));
  const int code_bits = slice_bits(format.dtype);
  const int unit = 32 / code_bits;
  for (int first = 0; first < format.padded_dims(); first += unit) {
    uint32_t lanes[kPageTokens] = {};
    for (int dim = first; dim < std::min(first + unit, format.dims); ++dim) {
      const Choice& choice = choices[static_cast<size_t>(format.coded_dim(dim))];
      const DimCode code = choose_code(choice.range.lo, choice.range.hi, whole_bits(format, dim),
                                       step_below(format, dim, choice.step, base_step), base_step);
      const uint16_t parameter = stored_parameter(format, dim, code.parameter);
      std::memcpy(parameters + dim * 2, &parameter, 2);
      load_dim(tail_page, format.coded_dim(dim), bits);
      encode_dim(format, dim, bits, code, dim % 4 * 8 + dim % unit / 4 * code_bits, lanes);
    }
    const int group = first / unit;
    auto* words = reinterpret_cast<uint32_t*>(slice_page);
    if (format.order == SliceOrder::kByGroup) {
      std::memcpy(words + format.word_at(group, 0), lanes, sizeof(lanes));
    } else {
      for (int t = 0; t < kPageTokens; ++t) words[format.word_at(group, t)] = lanes[t];
    }
  }
}

float slice_value(const SliceFormat& format, const std::byte* page, float base, int dim,
                  int token) {
  if (format.dtype == SliceDType::kF32) {
    return load_element(DType::kF32, page, int64_t{dim} * kPageTokens + token);
  }
  const int bits = slice_bits(format.dtype);
  const int unit = 32 / bits;  // dimensions of one token in four bytes
  const int64_t lane = int64_t{dim / unit} * kPageTokens + token;
  if (!is_coded(format.dtype)) return load_element(DType::kBF16, page, lane * 2 + dim % 2);
  const int code = static_cast<int>(page[lane * 4 + dim % 4]) >> dim % unit / 4 * bits;
  uint16_t parameter = 0;
  std::memcpy(&parameter, page + format.code_bytes() + dim * 2, 2);
  return parameter_scale(parameter, base) *
         (parameter_zero(parameter, bits) + static_cast<float>(code & ((1 << bits) - 1)));
}

}  // namespace fasa
