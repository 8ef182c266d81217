// The slice: an index over the dominant dimensions of the keys of one page and KV head. TIP reads
// it to choose tokens, and to weigh those of a low-bit set. The layouts put 16 tokens into one
// 512-bit register:
//
//   f32   [dim][64 tokens]
//   bf16  [dim / 2][64 tokens][2]
//   int8  [dim / 4][64 tokens][4]              unsigned codes
//   int4  [dim / 8][64 tokens][4 bytes]        low nibbles dims 0-3 of the eight, high nibbles 4-7
//   int2  [dim / 16][64 tokens][4 bytes]       bits 2j of byte b: dim 4j + b of the sixteen
//
// Integer codes are followed by one 16-bit parameter per dimension: the low six bits j give the
// scale, base * 2^(-j/8) with one f32 `base` (a power of two) per page and head in the block's
// header; the high ten bits n (signed) give the zero, n * 2^(bits - 3) * scale:
//     value = scale * (n * 2^(bits - 3) + code)
// A zero relative to the scale preserves channels with a large mean and a small spread (key
// biases), which an 8-bit float zero would lose.
//
// Measured, error of 128-dimensional dot products, relative to unrounded f32 scales (range / codes)
// and zeros (minimum), Gaussian channels of 64 tokens: int2 0.84, int4 1.04, int8 1.14; channels of
// mean 300 and spread 1 after bf16: 0.61, 0.75, 0.92. Below 1 because the range may reach half a
// code beyond the first and last code (range / 4 instead of range / 3 in int2). Tried: quarter
// octaves with zeros in steps of 2^(bits - 2): 1.01, 1.17, 1.23; of 2^(bits - 3): 0.88, 1.09, 1.20;
// zeros in steps of 2^(bits - 4): 0.82, 1.02, 1.12, but the ten bits end at 128 scales and large
// means then cost a factor of 1.5 to 2.6; half octaves and 11-bit zeros: 0.94 in int2; the scale of
// least squared error among those that fit: no gain (0.84). Eight octaves of scales below the
// largest are enough: what a smaller scale would save is below the error of that largest channel.
//
// In int2 the first `fine` dimensions may have four bits: int4's code c and scale, stored as two
// dimensions of two bits. The first part is c >> 2 with four times int4's scale and int4's n (the
// same zero in int2's units). The second part is c & 3 with int4's scale and no zero; the second
// parts are the last `fine` dimensions of the slice. Scorers have no case for it: slice_dims
// repeats the fine dimensions at its end, so q meets both parts. A prefix still is the best FCs.
// In the tail, whose values are whole, the second parts are zero.
//
// Value codes have the same form, for all dimensions of the values, in token order: word
// [token][group of dimensions] instead of [group][token]. A low-bit set reads one or two tokens of
// a page, whose words are then contiguous. Parameters are still per dimension: one scale and zero
// per token doubled the error of attention (SmolLM2, one window of 256 tokens, 128 rows and 512
// low-bit tokens, KL to full attention: 0.0071 by token, 0.0036 by page and dimension, 0.0036 with
// uncoded values). Values differ most between dimensions, so codes per token round a dimension the
// same way in every token, and sums do not average this error out.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fasa {

inline constexpr int kPageTokens = 64;

// Number of pages for `tokens` tokens; the last one may be partial.
constexpr int pages_of(int64_t tokens) {
  return static_cast<int>((tokens + kPageTokens - 1) / kPageTokens);
}

enum class SliceDType : uint8_t { kF32, kBF16, kInt8, kInt4, kInt2 };
inline constexpr SliceDType kSliceDTypes[] = {
    SliceDType::kF32, SliceDType::kBF16, SliceDType::kInt8, SliceDType::kInt4, SliceDType::kInt2};

constexpr int slice_bits(SliceDType dtype) {
  switch (dtype) {
    case SliceDType::kF32:
      return 32;
    case SliceDType::kBF16:
      return 16;
    case SliceDType::kInt8:
      return 8;
    case SliceDType::kInt4:
      return 4;
    case SliceDType::kInt2:
      return 2;
  }
  return 0;
}
constexpr bool is_coded(SliceDType dtype) { return slice_bits(dtype) <= 8; }
constexpr std::string_view slice_dtype_name(SliceDType dtype) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "int8", "int4", "int2"};
  return kNames[static_cast<int>(dtype)];
}
constexpr std::optional<SliceDType> parse_slice_dtype(std::string_view name) {
  for (const SliceDType dtype : kSliceDTypes) {
    if (slice_dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

// Order of the words of a page's codes.
enum class SliceOrder : uint8_t { kByGroup, kByToken };

struct SliceFormat {
  SliceDType dtype = SliceDType::kInt2;
  int dims = 0;  // stored: two per frequency chunk, and `fine` second parts; all of a value
  SliceOrder order = SliceOrder::kByGroup;
  int fine = 0;  // int2 only: the first dimensions, in two parts

  // Dimensions of the key or value, and the one that stored dimension `dim` is a part of.
  constexpr int coded_dims() const { return dims - fine; }
  constexpr int coded_dim(int dim) const { return dim < coded_dims() ? dim : dim - coded_dims(); }

  // Codes of four dimensions share a register lane; the rest of the last group is padding that
  // scores zero.
  constexpr int padded_dims() const {
    const int unit = is_coded(dtype) ? 32 / slice_bits(dtype) : 2;
    return (dims + unit - 1) / unit * unit;
  }
  // For codes: words per token, and the index of a word in the page.
  constexpr int groups() const { return padded_dims() * slice_bits(dtype) / 32; }
  constexpr int word_at(int group, int token) const {
    return order == SliceOrder::kByGroup ? group * kPageTokens + token : token * groups() + group;
  }
  constexpr int64_t code_bytes() const {
    return int64_t{padded_dims()} * kPageTokens * slice_bits(dtype) / 8;
  }
  // Codes and parameters; a multiple of 64 bytes.
  constexpr int64_t page_bytes() const {
    const int64_t bytes = code_bytes() + (is_coded(dtype) ? int64_t{padded_dims()} * 2 : 0);
    return (bytes + 63) / 64 * 64;
  }
  // The format of the first `wanted` dimensions of a page, rounded up to whole lanes; 0: all.
  constexpr SliceFormat prefix(int wanted) const {
    const int unit = is_coded(dtype) ? 32 / slice_bits(dtype) : 2;
    const int rounded = (wanted + unit - 1) / unit * unit;
    return {dtype, wanted == 0 || rounded > dims ? dims : rounded};
  }
  // The format of the newest, unsealed page, from which codes are made.
  constexpr SliceFormat tail() const {
    return {dtype == SliceDType::kF32 ? SliceDType::kF32 : SliceDType::kBF16, dims,
            SliceOrder::kByGroup, fine};
  }
};

}  // namespace fasa
