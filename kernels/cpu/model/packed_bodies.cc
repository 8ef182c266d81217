#include "kernels/cpu/model/packed_bodies.h"

#include <algorithm>
#include <cmath>

namespace fasa::cpu {

static_assert(kPanelColumns == kPackedColumns && kBlockPlaces == kPackedBlock &&
              kSuperPlaces == kPackedSuper);
static_assert(static_cast<int>(ScaleKind::kF32) == 0 && static_cast<int>(ScaleKind::kF16) == 1 &&
              static_cast<int>(ScaleKind::kBF16) == 2 && static_cast<int>(ScaleKind::kSuper) == 3 &&
              static_cast<int>(ScaleKind::kSuperNibble) == 4);
static_assert(static_cast<int>(OffsetKind::kNone) == 0 &&
              static_cast<int>(OffsetKind::kZero) == 1 &&
              static_cast<int>(OffsetKind::kZero16) == 2 &&
              static_cast<int>(OffsetKind::kF16) == 3 &&
              static_cast<int>(OffsetKind::kSuper) == 4 &&
              static_cast<int>(OffsetKind::kSuperNibble) == 5);

const PackedBodies& packed_bodies(Target target) {
#if defined(__x86_64__)
  return on_target(target, {&kPackedBodiesPortable, &kPackedBodiesAvx2, &kPackedBodiesAvx512,
                            &kPackedBodiesVnni});
#else
  static_cast<void>(target);
  return kPackedBodiesPortable;
#endif
}

namespace {

bool is_whole(const std::array<float, 16>& table, float unit) {
  return std::all_of(table.begin(), table.end(),
                     [unit](float value) { return value / unit == std::round(value / unit); });
}

// A unit that makes all values of the table integers (FP4: a half), or the finest one.
float unit_of(const std::array<float, 16>& table) {
  float most = 0;
  for (const float value : table) most = std::max(most, std::abs(value));
  if (most == 0) return 1;
  for (const float unit : {1.0f, 0.5f, 0.25f}) {
    if (most / unit <= 127 && is_whole(table, unit)) return unit;
  }
  return most / 127;
}

}  // namespace

bool is_whole(const PackedFormat& format) {
  if (format.is_float) return false;
  return !format.has_table || is_whole(format.table, unit_of(format.table));
}

PackedShape packed_shape(const PackedFormat& format, const PackedPanel& panel, bool whole_numbers) {
  PackedShape shape{.bits = format.bits,
                    .has_table = format.has_table,
                    .centre = format.centre,
                    .is_float = format.is_float,
                    .scale_kind = static_cast<int>(format.scale),
                    .offset_kind = static_cast<int>(format.offset),
                    .group = format.group,
                    .blocks = panel.blocks,
                    .block_bytes = panel.block_bytes,
                    .scales = panel.scales,
                    .offsets = panel.offsets,
                    .super_scales = panel.super_scales,
                    .super_offsets = panel.super_offsets,
                    .bytes = panel.bytes};
  if (whole_numbers && format.has_table) shape.table_unit = unit_of(format.table);
  for (int code = 0; code < 16; ++code) {
    shape.table[code] = format.value(format.bits < 4 ? code % (1 << format.bits) : code);
    if (whole_numbers && format.has_table) {
      shape.table[code] = std::round(shape.table[code] / shape.table_unit);
      shape.byte_table[code] = static_cast<int8_t>(shape.table[code]);
    }
  }
  return shape;
}

}  // namespace fasa::cpu
