// How a row is stored: the whole key, then the value, of one token and KV head, padded to 64 bytes.
//
// In f32, f16 or bf16 a row holds the elements themselves. In int8 it holds codes c in [-127, 127]
// that stand for c * scale, with one scale for the key and one for the value: 1/127 of the largest
// magnitude, as bf16. The scale is stored in the codes' low bits and takes no extra bytes, so a row
// of head_dim 128 is 256 bytes and rows are moved as plain bytes: bit b of the scale is the parity
// of the codes b, b + 16, b + 32, ... of its vector. If a parity is wrong, the code with the
// largest rounding error moves to its other neighbour; a code of +-127 moves only if all codes of
// its bit are +-127. So the largest code stays 127, and a decoded row, stored again, is the same
// row. That adds 8 % to the mean square error at head_dim 128, 29 % at 64 (scales in 16 codes'
// lowest bits would add 37 % and 73 %; separate bytes would make a row 320 bytes, or need a second
// fetch).
//
// A vector of zeros is stored unchanged. A vector with a NaN or an infinity has the scale NaN: all
// of it reads as NaN, since no scale could preserve its other elements. No scale is below 2^-126,
// and none is so large that a code could stand for an infinity.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/dtype.h"

namespace fasa {

inline constexpr int64_t kAlignment = 64;

constexpr int64_t align_up(int64_t bytes, int64_t alignment = kAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Type of a row's elements: a tensor's dtype, or codes.
class RowDType {
 public:
  enum Kind : uint8_t { kF32, kF16, kBF16, kInt8 };

  constexpr RowDType() = default;
  constexpr RowDType(Kind kind) : kind_(kind) {}                        // NOLINT
  constexpr RowDType(DType dtype) : kind_(static_cast<Kind>(dtype)) {}  // NOLINT
  constexpr operator Kind() const { return kind_; }                     // NOLINT

  constexpr bool is_coded() const { return kind_ == kInt8; }
  // Dtype of the elements of a row that is not coded.
  constexpr DType elements() const { return static_cast<DType>(kind_); }
  constexpr int bytes() const { return is_coded() ? 1 : dtype_bytes(elements()); }

 private:
  Kind kind_ = kBF16;
};
static_assert(RowDType(DType::kF32) == RowDType::kF32 && RowDType(DType::kF16) == RowDType::kF16 &&
              RowDType(DType::kBF16) == RowDType::kBF16);

std::string_view row_dtype_name(RowDType dtype);  // "f32", "f16", "bf16", "int8"
std::optional<RowDType> parse_row_dtype(std::string_view name);

inline constexpr int kScaleBits = 16;
inline constexpr int kFewestCoded = 2 * kScaleBits;  // dimensions of a coded vector
inline constexpr int kLargestCode = 127;

struct RowFormat {
  RowDType dtype;
  int key_dim = 0;
  int value_dim = 0;

  constexpr int64_t key_bytes() const { return int64_t{key_dim} * dtype.bytes(); }
  constexpr int64_t used_bytes() const { return int64_t{key_dim + value_dim} * dtype.bytes(); }
  constexpr int64_t bytes() const { return align_up(used_bytes()); }
  constexpr bool holds_scales() const {
    return !dtype.is_coded() || (key_dim >= kFewestCoded && value_dim >= kFewestCoded);
  }
};

}  // namespace fasa
