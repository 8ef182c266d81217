// Weights of few bits as kernels read them: codes in panels of 16 outputs, and for each group of
// inputs the numbers that turn codes into weights.
//
//   weight = scale * value(code) + offset       of the group that the input's place lies in
//
// Inputs lie in places: in their own order, or in the order that the tensor gives (PackedTensor).
// 32 places are a block, and a panel is all blocks of its 16 outputs, then scales, then offsets:
//
//   block    4 lines of 64 bytes (8 places x 16 outputs, low 4 bits of a code), then the planes of
//            the other bits: 5 bits 64 bytes, 6 bits 128, 8 bits 4 lines of the high 4 bits.
//            2 and 3 bits: 2 double lines of the low 2 bits, then the plane of the third bit
//   line     a 32-bit word an output; places 2 j + h (j < 4, h < 2) are nibbles 4 h + j, so that
//            nibble j of both halves is a pair of neighbours, what a dot product of bf16 takes
//   double   two lines of codes of 2 bits: the first in the low bits of nibbles, the second in the
//            high ones, so that a shift by 2 makes one the other
//   plane    one bit of 4 lines: a 32-bit word an output; bit 4 nibble + line, so that one shift
//            aligns it with the nibbles of a line
//   scales   [groups][16] f32, f16, bf16; or int8 with f16 [supers][16], a super being 256 places
//   offsets  [groups][16] none, int8 zeros, f16; or uint8 with f16 [supers][16], or in the scales'
//            bytes
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace fasa {

inline constexpr int64_t kPackedColumns = 16;
inline constexpr int64_t kPackedBlock = 32;
inline constexpr int64_t kPackedLine = 8;  // places
inline constexpr int64_t kPackedSuper = 256;

// kSuper: int8 codes, times the super's f16. kSuperNibble: codes of 4 bits without sign.
enum class ScaleKind : uint8_t { kF32, kF16, kBF16, kSuper, kSuperNibble };
// kZero: offset = -scale * zero (int8; kZero16: int16). kF16: the offset itself. kSuper: minus
// uint8 codes times the super's f16. kSuperNibble: codes of 4 bits, above those of the scales.
enum class OffsetKind : uint8_t { kNone, kZero, kZero16, kF16, kSuper, kSuperNibble };

// Whether an f16 of the super is a factor.
constexpr bool has_super(ScaleKind kind) { return kind >= ScaleKind::kSuper; }
constexpr bool has_super(OffsetKind kind) { return kind >= OffsetKind::kSuper; }
// For one scale group and output.
constexpr int64_t scale_bytes(ScaleKind kind) {
  return kind == ScaleKind::kF32 ? 4 : has_super(kind) ? 1 : 2;
}
constexpr int64_t offset_bytes(OffsetKind kind) {
  if (kind == OffsetKind::kNone || kind == OffsetKind::kSuperNibble) return 0;
  return kind == OffsetKind::kZero || kind == OffsetKind::kSuper ? 1 : 2;
}

// Float8 with 4 bits of exponent and 3 of mantissa, without infinities: the bits of an f32 with
// another bias. 0x7f and 0xff are NaN, which readers refuse.
constexpr float f32_from_e4m3(uint8_t code) {
  const uint32_t bits = (code & 0x7fu) << 20 | (code & 0x80u) << 24;
  return std::bit_cast<float>(bits) * 0x1p120f;
}

struct PackedFormat {
  int bits = 4;    // 2 to 6, 8
  int group = 32;  // places: 16 or a multiple of 32
  ScaleKind scale = ScaleKind::kF16;
  OffsetKind offset = OffsetKind::kNone;
  // If true, a table gives the values of 4-bit codes; else value(code) = code - centre.
  bool has_table = false;
  int centre = 0;
  std::array<float, 16> table = {};
  bool is_float = false;  // codes of 8 bits are numbers in float8 e4m3

  float value(int code) const {
    if (is_float) return f32_from_e4m3(static_cast<uint8_t>(code));
    return has_table ? table[static_cast<size_t>(code)] : static_cast<float>(code - centre);
  }
  bool operator==(const PackedFormat&) const = default;
};

// Layout of a panel of a format with `places` places (a multiple of kPackedBlock).
struct PackedPanel {
  PackedPanel() = default;
  PackedPanel(const PackedFormat& format, int64_t places);

  int64_t blocks = 0;
  int64_t groups = 0;
  int64_t supers = 0;
  int64_t block_bytes = 0;
  // Byte offsets in the panel.
  int64_t scales = 0;
  int64_t offsets = 0;
  int64_t super_scales = 0;
  int64_t super_offsets = 0;
  int64_t bytes = 0;  // a multiple of 64
};

// The parts of one output's row, as numbers that the format represents exactly.
struct PackedRow {
  const uint8_t* codes = nullptr;  // [places]
  const float* scales = nullptr;   // [groups]; of supers: the integers
  const float* offsets = nullptr;  // [groups]; kZero: zeros beside the centre; of supers: integers
  const float* super_scales = nullptr;   // [supers]
  const float* super_offsets = nullptr;  // [supers]
};

// Writes column `column` of a panel that the caller has zeroed.
void pack_row(const PackedFormat& format, const PackedPanel& layout, const PackedRow& row,
              int64_t column, std::byte* panel);

// The scale and offset of one group in f32, as kernels compute them.
struct GroupNumbers {
  float scale;
  float offset;
};
GroupNumbers group_numbers(const PackedFormat& format, const PackedRow& row, int64_t group);

// The code at `place` of a packed column: the reference for kernels.
int packed_code(const PackedFormat& format, const PackedPanel& layout, const std::byte* panel,
                int64_t column, int64_t place);
// A packed column's scale and offset.
GroupNumbers packed_numbers(const PackedFormat& format, const PackedPanel& layout,
                            const std::byte* panel, int64_t column, int64_t group);

}  // namespace fasa
