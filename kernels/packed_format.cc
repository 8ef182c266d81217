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
        plane_bit(16 * (place % 2) + 8 * (place % 8 / 4) + 2 * line + place % 8 / 2 % 2) {}
  int64_t line;
  int64_t nibble;     // of the line's word
  int64_t plane_bit;  // of a plane's word
};

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
  for (int64_t place = 0; place < kPackedBlock; ++place) {
    const Spot spot(place);
    const uint32_t code = codes[place];
    low[spot.line] |= (code & 15) << (4 * spot.nibble);
    if (format.bits == 8) {
      high[spot.line] |= (code >> 4) << (4 * spot.nibble);
    } else if (format.bits > 4) {
      high[0] |= (code >> 4 & 1) << spot.plane_bit;
      high[1] |= (code >> 5 & 1) << spot.plane_bit;
    }
  }
  const int64_t planes = format.bits == 8 ? kLines : format.bits - 4;
  for (int64_t line = 0; line < kLines; ++line) store_word(out + line * kLineBytes, low[line]);
  for (int64_t plane = 0; plane < planes; ++plane) {
    store_word(out + (kLines + plane) * kLineBytes, high[plane]);
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
    case ScaleKind::kSuper: {
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

GroupNumbers numbers_of(const PackedFormat& format, float scale, float offset, float super_scale,
                        float super_offset) {
  GroupNumbers numbers{scale, 0};
  if (format.scale == ScaleKind::kSuper) numbers.scale = super_scale * scale;
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
      block_bytes(kLines * kLineBytes +
                  (format.bits == 8 ? kLines : format.bits - 4) * kLineBytes) {
  scales = blocks * block_bytes;
  offsets = scales + groups * kPackedColumns * scale_bytes(format.scale);
  super_scales = offsets + groups * kPackedColumns * offset_bytes(format.offset);
  const int64_t super_bytes = supers * kPackedColumns * 2;
  super_offsets = super_scales + (format.scale == ScaleKind::kSuper ? super_bytes : 0);
  const int64_t end = super_offsets + (format.offset == OffsetKind::kSuper ? super_bytes : 0);
  bytes = up(end, kLineBytes) * kLineBytes;
}

void pack_row(const PackedFormat& format, const PackedPanel& layout, const PackedRow& row,
              int64_t column, std::byte* panel) {
  for (int64_t block = 0; block < layout.blocks; ++block) {
    pack_block(format, row.codes + block * kPackedBlock,
               panel + block * layout.block_bytes + column * 4);
  }
  const int64_t scale_size = scale_bytes(format.scale);
  const int64_t offset_size = offset_bytes(format.offset);
  for (int64_t group = 0; group < layout.groups; ++group) {
    const int64_t at = group * kPackedColumns + column;
    store_scale(format.scale, row.scales[group], panel + layout.scales + at * scale_size);
    if (offset_size > 0) {
      store_offset(format.offset, row.offsets[group], panel + layout.offsets + at * offset_size);
    }
  }
  for (int64_t super = 0; super < layout.supers; ++super) {
    const int64_t at = (super * kPackedColumns + column) * 2;
    if (format.scale == ScaleKind::kSuper) {
      store_f16(panel + layout.super_scales + at, row.super_scales[super]);
    }
    if (format.offset == OffsetKind::kSuper) {
      store_f16(panel + layout.super_offsets + at, row.super_offsets[super]);
    }
  }
}

GroupNumbers group_numbers(const PackedFormat& format, const PackedRow& row, int64_t group) {
  const int64_t super = group * format.group / kPackedSuper;
  return numbers_of(format, row.scales[group],
                    format.offset == OffsetKind::kNone ? 0 : row.offsets[group],
                    format.scale == ScaleKind::kSuper ? row.super_scales[super] : 0,
                    format.offset == OffsetKind::kSuper ? row.super_offsets[super] : 0);
}

int packed_code(const PackedFormat& format, const PackedPanel& layout, const std::byte* panel,
                int64_t column, int64_t place) {
  const Spot spot(place);
  const std::byte* const block = panel + place / kPackedBlock * layout.block_bytes + column * 4;
  const auto nibble = [&](const std::byte* lines) {
    return load_word(lines + spot.line * kLineBytes) >> (4 * spot.nibble) & 15;
  };
  uint32_t code = nibble(block);
  const std::byte* const planes = block + kLines * kLineBytes;
  if (format.bits == 8) return static_cast<int>(code | nibble(planes) << 4);
  for (int bit = 4; bit < format.bits; ++bit) {
    code |= (load_word(planes + (bit - 4) * kLineBytes) >> spot.plane_bit & 1) << bit;
  }
  return static_cast<int>(code);
}

GroupNumbers packed_numbers(const PackedFormat& format, const PackedPanel& layout,
                            const std::byte* panel, int64_t column, int64_t group) {
  const int64_t at = group * kPackedColumns + column;
  const int64_t super = (group * format.group / kPackedSuper * kPackedColumns + column) * 2;
  const bool super_scale = format.scale == ScaleKind::kSuper;
  const bool super_offset = format.offset == OffsetKind::kSuper;
  const int64_t offset_size = offset_bytes(format.offset);
  return numbers_of(
      format, load_scale(format.scale, panel + layout.scales + at * scale_bytes(format.scale)),
      offset_size == 0 ? 0 : load_offset(format.offset, panel + layout.offsets + at * offset_size),
      super_scale ? load_f16(panel + layout.super_scales + super) : 0,
      super_offset ? load_f16(panel + layout.super_offsets + super) : 0);
}

}  // namespace fasa
