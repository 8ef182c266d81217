// Scales and offsets of packed weights in registers: the part of packed_body_inl.h that reads a
// panel's numbers, after the same vector header.
#pragma once

#include "kernels/cpu/model/packed_body_types.h"

namespace fasa::cpu {
namespace {

inline Bits load_bits(const unsigned char* at) {
  Bits bits;
  __builtin_memcpy(&bits, at, sizeof(bits));
  return bits;
}
inline Vec load_vec(const float* at) {
  Vec values;
  __builtin_memcpy(&values, at, sizeof(values));
  return values;
}
inline void store_vec(float* at, Vec values) { __builtin_memcpy(at, &values, sizeof(values)); }
inline Vec all(float value) { return value - Vec{}; }

// The factors of a super's scales and offsets.
struct SuperNumbers {
  Vec scale = {};
  Vec offset = {};
};

inline SuperNumbers super_of(const PackedShape& shape, const unsigned char* panel, int64_t group,
                             int lane) {
  const int64_t super = group * shape.group / kSuperPlaces * kPanelColumns + lane;
  SuperNumbers numbers;
  if (shape.scale_kind >= 3) numbers.scale = load_f16(panel + shape.super_scales + super * 2);
  if (shape.offset_kind >= 4) numbers.offset = -load_f16(panel + shape.super_offsets + super * 2);
  return numbers;
}

inline Vec scale_of(const PackedShape& shape, const unsigned char* panel, int64_t group, int lane,
                    const SuperNumbers& super) {
  const int64_t at = group * kPanelColumns + lane;
  const unsigned char* const scales = panel + shape.scales;
  if (shape.scale_kind == 0) return load_vec((const float*)(scales + at * 4));
  if (shape.scale_kind == 1) return load_f16(scales + at * 2);
  if (shape.scale_kind == 2) return load_bf16(scales + at * 2);
  if (shape.scale_kind == 3) return super.scale * load_int8(scales + at);
  return super.scale * floats_of(load_u8(scales + at) & 15);
}

inline Vec offset_of(const PackedShape& shape, const unsigned char* panel, int64_t group, int lane,
                     Vec scale, const SuperNumbers& super) {
  const int64_t at = group * kPanelColumns + lane;
  const unsigned char* const offsets = panel + shape.offsets;
  if (shape.offset_kind == 0) return Vec{};
  if (shape.offset_kind == 1) return -scale * load_int8(offsets + at);
  if (shape.offset_kind == 2) return -scale * widen_i16(offsets + at * 2);
  if (shape.offset_kind == 3) return load_f16(offsets + at * 2);
  if (shape.offset_kind == 4) return super.offset * floats_of(load_u8(offsets + at));
  return super.offset * floats_of(load_u8(panel + shape.scales + at) >> 4);
}

// The scale group that a multiplication has come to, and the factors of its super.
template <int kPanels>
struct Groups {
  int64_t each;  // steps a group
  int64_t left;  // steps of this group
  int64_t group = 0;
  SuperNumbers supers[kPanels];

  explicit Groups(const PackedTask& task)
      : each(task.step < task.shape->group ? task.shape->group / task.step : 1), left(each) {}

  // Before each step whose first place begins a super.
  inline void widen(const PackedTask& task, int lane) {
#pragma GCC unroll 2
    for (int panel = 0; panel < kPanels; ++panel) {
      supers[panel] = super_of(*task.shape, task.panel[panel], group, lane);
    }
  }
  // After each step. A division took longer than a step's products.
  inline void next() {
    if (--left > 0) return;
    left = each;
    ++group;
  }
};

// The first row's activations at a place, a multiple of 16. The next row's are kBlockPlaces behind.
template <typename T>
inline const T* activations(const PackedTask& task, int64_t place) {
  return (const T*)task.x + place / kBlockPlaces * kBlockPlaces * task.all_rows +
         place % kBlockPlaces;
}

// Adds a step's dot products, dot(panel, row, the row's numbers), scaled, to the outputs.
template <int kRows, int kPanels, typename Dot>
[[gnu::always_inline]] inline void add_step(const PackedTask& task, const Groups<kPanels>& groups,
                                            int64_t step, int lane, const Dot& dot,
                                            Vec (&out)[kPanels][kRows]) {
  const PackedShape& shape = *task.shape;
  const PackedNumbers* const numbers = task.numbers + step * task.all_rows;
#pragma GCC unroll 2
  for (int panel = 0; panel < kPanels; ++panel) {
    const unsigned char* const from = task.panel[panel];
    const SuperNumbers& super = groups.supers[panel];
    const Vec scale = scale_of(shape, from, groups.group, lane, super);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      Vec& sum = out[panel][row];
      sum = fma(scale, dot(panel, row, numbers[row]), sum);
    }
    if (!task.sums) continue;
    const Vec offset = offset_of(shape, from, groups.group, lane, scale, super);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      out[panel][row] = fma(offset, all(numbers[row].sum), out[panel][row]);
    }
  }
}

// Bytes of a scale group's numbers for 16 outputs, by kind.
inline constexpr int kScaleBytes[] = {64, 32, 32, 16, 16};
inline constexpr int kOffsetBytes[] = {0, 16, 32, 32, 16, 0};

// Prefetches scales and offsets, which follow the codes and are not covered by their prefetch: the
// chunk after [first, first + count), or the next panels' after the last chunk.
template <int kPanels>
inline void prefetch_numbers(const PackedTask& task, int64_t first, int64_t count, int64_t steps) {
  const PackedShape& shape = *task.shape;
  const bool last = first + count >= steps;
  const int64_t begin = last ? 0 : (first + count) * task.step / shape.group;
  const int64_t groups = (count * task.step + shape.group - 1) / shape.group;
  for (int i = 0; i < kPanels; ++i) {
    const unsigned char* const panel = task.panel[i] + (last ? kPanels * shape.bytes : 0);
    const auto fetch = [&](int64_t part, int bytes) {
      for (int64_t at = 0; at < groups * bytes; at += 64) {
        __builtin_prefetch(panel + part + begin * bytes + at);
      }
    };
    fetch(shape.scales, kScaleBytes[shape.scale_kind]);
    fetch(shape.offsets, kOffsetBytes[shape.offset_kind]);
  }
}

}  // namespace
}  // namespace fasa::cpu
