#include "kernels/packed_format.h"

#include <cstring>

#include "runtime/base/dtype.h"

namespace fasa {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kLines = 4;

int64_t up(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

// Location of an input's code in its block.
struct Spot {
  explicit Spot(int64_t place)
      : line(place % kPackedBlock / 8),
        nibble(4 * (place % 2) + place % 8 / 2),
        plane_bit(4 * nibble + line) {}
  int64_t line;
  int64_t nibble;     // of the line's word
  int64_t plane_bit;  // of a plane's word
};

// Bits of a code in lines; 8 bits have as many again in lines of their own.
int line_bits(int bits) { return bits < 4 ? 2 : 4; }
int64_t low_lines(int bits) { return kLines * line_bits(bits) / 4; }
int64_t high_lines(int bits) { return bits == 8 ? kLines : bits - line_bits(bits); }

uint32_t load_word(const std::byte* at) {
  uint32_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}
void store_word(std::byte* at, uint32_t word) { std::memcpy(at, &word, sizeof(word)); }

// One output's words of a block, held in registers until they are complete.
void pack_block(const PackedFormat& format, const uint8_t* codes, std::byte* out) {
  uint32_t low[kLines] = {};
  uint32_t high[kLines] = {};  // 8 bits: lines; else planes
  const int bits = line_bits(format.bits);
  for (int64_t place = 0; place < kPackedBlock; ++place) {
    const Spot spot(place);
    const uint32_t code = codes[place];
    if (bits == 2) {
      low[spot.line / 2] |= (code & 3) << (4 * spot.nibble + spot.line % 2 * 2);
    } else {
      low[spot.line] |= (code & 15) << (4 * spot.nibble);
    }
    if (format.bits == 8) {
      high[spot.line] |= (code >> 4) << (4 * spot.nibble);
    } else {
      high[0] |= (code >> bits & 1) << spot.plane_bit;
      high[1] |= (code >> (bits + 1) & 1) << spot.plane_bit;
    }
  }
  const int64_t lines = low_lines(format.bits);
  for (int64_t line = 0; line < lines; ++line) store_word(out + line * kLineBytes, low[line]);
  for (int64_t line = 0; line < high_lines(format.bits); ++line) {
    store_word(out + (lines + line) * kLineBytes, high[line]);
  }
}

void store_f16(std::byte* at, float value) {
  const uint16_t bits = f16_from_f32(value);
  std::memcpy(at, &bits, sizeof(bits));
}
float load_f16(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return f32_from_f16(bits);
}

void store_scale(ScaleKind kind, float value, std::byte* at) {
  switch (kind) {
    case ScaleKind::kF32:
      std::memcpy(at, &value, sizeof(value));
      break;
    case ScaleKind::kF16:
      store_f16(at, value);
      break;
    case ScaleKind::kBF16: {
      const uint16_t bits = bf16_from_f32(value);
      std::memcpy(at, &bits, sizeof(bits));
      break;
    }
    case ScaleKind::kSuper:
    case ScaleKind::kSuperNibble: {  // the offset is added to it
      const auto code = static_cast<int8_t>(value);
      std::memcpy(at, &code, sizeof(code));
      break;
    }
  }
}

float load_scale(ScaleKind kind, const std::byte* at) {
  switch (kind) {
    case ScaleKind::kF32: {
      float value = 0;
      std::memcpy(&value, at, sizeof(value));
      return value;
    }
    case ScaleKind::kF16:
      return load_f16(at);
    case ScaleKind::kBF16: {
      uint16_t bits = 0;
      std::memcpy(&bits, at, sizeof(bits));
      return f32_from_bf16(bits);
    }
    case ScaleKind::kSuper:
      return static_cast<float>(static_cast<int8_t>(*at));
    case ScaleKind::kSuperNibble:
      return static_cast<float>(static_cast<int>(*at) & 15);
  }
  return 0;
}

void store_offset(OffsetKind kind, float value, std::byte* at) {
  switch (kind) {
    case OffsetKind::kNone:
      break;
    case OffsetKind::kZero:
      *at = static_cast<std::byte>(static_cast<int8_t>(value));
      break;
    case OffsetKind::kSuper:
      *at = static_cast<std::byte>(static_cast<uint8_t>(value));
      break;
    case OffsetKind::kSuperNibble:
      *at |= static_cast<std::byte>(static_cast<uint8_t>(value) << 4);
      break;
    case OffsetKind::kZero16: {
      const auto zero = static_cast<int16_t>(value);
      std::memcpy(at, &zero, sizeof(zero));
      break;
    }
    case OffsetKind::kF16:
      store_f16(at, value);
      break;
  }
}

float load_offset(OffsetKind kind, const std::byte* at) {
  switch (kind) {
    case OffsetKind::kNone:
      return 0;
    case OffsetKind::kZero:
      return static_cast<float>(static_cast<int8_t>(*at));
    case OffsetKind::kSuper:
      return static_cast<float>(static_cast<uint8_t>(*at));
    case OffsetKind::kSuperNibble:
      return static_cast<float>(static_cast<int>(*at) >> 4);
    case OffsetKind::kZero16: {
      int16_t zero = 0;
      std::memcpy(&zero, at, sizeof(zero));
      return static_cast<float>(zero);
    }
    case OffsetKind::kF16:
      return load_f16(at);
  }
  return 0;
}

// Number `at` of a panel's scales and of its offsets.
template <typename Byte>
Byte* scale_at(const PackedFormat& format, const PackedPanel& layout, Byte* panel, int64_t at) {
  return panel + layout.scales + at * scale_bytes(format.scale);
}
template <typename Byte>
Byte* offset_at(const PackedFormat& format, const PackedPanel& layout, Byte* panel, int64_t at) {
  if (format.offset == OffsetKind::kSuperNibble) return scale_at(format, layout, panel, at);
  return panel + layout.offsets + at * offset_bytes(format.offset);
}

GroupNumbers numbers_of(const PackedFormat& format, float scale, float offset, float super_scale,
                        float super_offset) {
  GroupNumbers numbers{scale, 0};
  if (has_super(format.scale)) numbers.scale = super_scale * scale;
  switch (format.offset) {
    case OffsetKind::kNone:
      break;
    case OffsetKind::kZero:
    case OffsetKind::kZero16:
      numbers.offset = -numbers.scale * offset;
      break;
    case OffsetKind::kF16:
      numbers.offset = offset;
      break;
    case OffsetKind::kSuper:
    case OffsetKind::kSuperNibble:
      numbers.offset = -super_offset * offset;
      break;
  }
  return numbers;
}

}  // namespace

PackedPanel::PackedPanel(const PackedFormat& format, int64_t places)
    : blocks(places / kPackedBlock),
      groups(up(places, format.group)),
      supers(up(places, kPackedSuper)),
      block_bytes((low_lines(format.bits) + high_lines(format.bits)) * kLineBytes) {
  scales = blocks * block_bytes;
  offsets = scales + groups * kPackedColumns * scale_bytes(format.scale);
  super_scales = offsets + groups * kPackedColumns * offset_bytes(format.offset);
  const int64_t super_bytes = supers * kPackedColumns * 2;
  super_offsets = super_scales + (has_super(format.scale) ? super_bytes : 0);
  const int64_t end = super_offsets + (has_super(format.offset) ? super_bytes : 0);
  bytes = up(end, kLineBytes) * kLineBytes;
}

void pack_row(const PackedFormat& format, const PackedPanel& layout, const PackedRow& row,
              int64_t column, std::byte* panel) {
  for (int64_t block = 0; block < layout.blocks; ++block) {
    pack_block(format, row.codes + block * kPackedBlock,
               panel + block * layout.block_bytes + column * 4);
  }
  for (int64_t group = 0; group < layout.groups; ++group) {
    const int64_t at = group * kPackedColumns + column;
    store_scale(format.scale, row.scales[group], scale_at(format, layout, panel, at));
    if (format.offset != OffsetKind::kNone) {
      store_offset(format.offset, row.offsets[group], offset_at(format, layout, panel, at));
    }
  }
  for (int64_t super = 0; super < layout.supers; ++super) {
    const int64_t at = (super * kPackedColumns + column) * 2;
    if (has_super(format.scale)) {
      store_f16(panel + layout.super_scales + at, row.super_scales[super]);
    }
    if (has_super(format.offset)) {
      store_f16(panel + layout.super_offsets + at, row.super_offsets[super]);
    }
  }
}

GroupNumbers group_numbers(const PackedFormat& format, const PackedRow& row, int64_t group) {
  const int64_t super = group * format.group / kPackedSuper;
  return numbers_of(format, row.scales[group],
                    format.offset == OffsetKind::kNone ? 0 : row.offsets[group],
                    has_super(format.scale) ? row.super_scales[super] : 0,
                    has_super(format.offset) ? row.super_offsets[super] : 0);
}

int packed_code(const PackedFormat& format, const PackedPanel& layout, const std::byte* panel,
                int64_t column, int64_t place) {
  const Spot spot(place);
  const std::byte* const block = panel + place / kPackedBlock * layout.block_bytes + column * 4;
  const auto nibble = [&](const std::byte* lines) {
    return load_word(lines + spot.line * kLineBytes) >> (4 * spot.nibble) & 15;
  };
  const std::byte* const high = block + low_lines(format.bits) * kLineBytes;
  if (format.bits == 8) return static_cast<int>(nibble(block) | nibble(high) << 4);
  const int low_bits = line_bits(format.bits);
  uint32_t code = 0;
  if (low_bits == 2) {
    const uint32_t word = load_word(block + spot.line / 2 * kLineBytes);
    code = word >> (4 * spot.nibble + spot.line % 2 * 2) & 3;
  } else {
    code = nibble(block);
  }
  for (int bit = low_bits; bit < format.bits; ++bit) {
    code |= (load_word(high + (bit - low_bits) * kLineBytes) >> spot.plane_bit & 1) << bit;
  }
  return static_cast<int>(code);
}

GroupNumbers packed_numbers(const PackedFormat& format, const PackedPanel& layout,
                            const std::byte* panel, int64_t column, int64_t group) {
  const int64_t at = group * kPackedColumns + column;
  const int64_t super = (group * format.group / kPackedSuper * kPackedColumns + column) * 2;
  return numbers_of(format, load_scale(format.scale, scale_at(format, layout, panel, at)),
                    load_offset(format.offset, offset_at(format, layout, panel, at)),
                    has_super(format.scale) ? load_f16(panel + layout.super_scales + super) : 0,
                    has_super(format.offset) ? load_f16(panel + layout.super_offsets + super) : 0);
}

}  // namespace fasa
