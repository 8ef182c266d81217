// Bodies that multiply and unpack packed weights, for one instruction set. A vector header,
// included before, defines Vec and Bits (kLanes floats, ints), fma(), Table with load_table(),
// look_up() and look_up_three(), widen_f16(), widen_bf16(), widen_i8(), widen_i16(), load_u8() of
// kLanes numbers, and kMaxRows.
//
// A step's products go to four sums per output, by the pair index within the line. The sums are
// added as (0 + 1) + (2 + 3), scaled, and added to the output, in the same way for any number of
// rows and panels.

#include "kernels/cpu/model/packed_body_types.h"

namespace fasa::cpu {
namespace {

constexpr int kHalves = kPanelColumns / kLanes;  // registers per line
// In place of a number of bits: 8 bits of a float.
constexpr int kE4m3 = 9;

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
inline Bits shift_right(Bits bits, int by) { return bits >> by; }
inline Vec to_floats(Bits ints) { return __builtin_convertvector(ints, Vec); }

// Scales and offsets of steps, widened: [steps][16] each.
struct Numbers {
  float scales[kMaxSteps * kPanelColumns];
  float offsets[kMaxSteps * kPanelColumns];
};

// The factors of a super's scales and offsets.
struct SuperNumbers {
  Vec scale = {};
  Vec offset = {};
};

inline SuperNumbers super_of(const PackedShape& shape, const unsigned char* panel, int64_t group,
                             int lane) {
  const int64_t super = group * shape.group / kSuperPlaces * kPanelColumns + lane;
  SuperNumbers numbers;
  if (shape.scale_kind >= 3) numbers.scale = widen_f16(panel + shape.super_scales + super * 2);
  if (shape.offset_kind >= 4) numbers.offset = -widen_f16(panel + shape.super_offsets + super * 2);
  return numbers;
}

inline Vec scale_of(const PackedShape& shape, const unsigned char* panel, int64_t group, int lane,
                    const SuperNumbers& super) {
  const int64_t at = group * kPanelColumns + lane;
  const unsigned char* const scales = panel + shape.scales;
  if (shape.scale_kind == 0) return load_vec((const float*)(scales + at * 4));
  if (shape.scale_kind == 1) return widen_f16(scales + at * 2);
  if (shape.scale_kind == 2) return widen_bf16(scales + at * 2);
  if (shape.scale_kind == 3) return super.scale * widen_i8(scales + at);
  return super.scale * to_floats(load_u8(scales + at) & 15);
}

inline Vec offset_of(const PackedShape& shape, const unsigned char* panel, int64_t group, int lane,
                     Vec scale, const SuperNumbers& super) {
  const int64_t at = group * kPanelColumns + lane;
  const unsigned char* const offsets = panel + shape.offsets;
  if (shape.offset_kind == 0) return Vec{};
  if (shape.offset_kind == 1) return -scale * widen_i8(offsets + at);
  if (shape.offset_kind == 2) return -scale * widen_i16(offsets + at * 2);
  if (shape.offset_kind == 3) return widen_f16(offsets + at * 2);
  if (shape.offset_kind == 4) return super.offset * to_floats(load_u8(offsets + at));
  return super.offset * to_floats(load_u8(panel + shape.scales + at) >> 4);
}

inline void widen_numbers(const PackedShape& shape, const unsigned char* panel, int64_t step,
                          int64_t first, int64_t count, Numbers* out) {
  const int64_t steps = step < shape.group ? shape.group / step : 1;  // per group
  for (int lane = 0; lane < kPanelColumns; lane += kLanes) {
    SuperNumbers super;
    Vec scale = {};
    Vec offset = {};
    // A division a step took longer than the step's products.
    int64_t group = first / steps;
    int64_t left = 0;  // steps of the group
    for (int64_t i = 0; i < count; ++i, --left) {
      if (left == 0) {
        if (i == 0 || group * shape.group % kSuperPlaces == 0) {
          super = super_of(shape, panel, group, lane);
        }
        scale = scale_of(shape, panel, group, lane, super);
        offset = offset_of(shape, panel, group, lane, scale, super);
        left = i == 0 ? steps - first % steps : steps;
        ++group;
      }
      store_vec(out->scales + i * kPanelColumns + lane, scale);
      store_vec(out->offsets + i * kPanelColumns + lane, offset);
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

// The layout of codes in a half block (16 places), and their values in f32. Codes of at most 4 bits
// use the table, longer integers are relative to the centre.
template <int kBits>
struct Codes {
  static constexpr int kLowBytes = kBits < 4 ? 64 : 128;
  static constexpr bool kHasPlanes = kBits == 3 || kBits == 5 || kBits == 6;

  const unsigned char* low;
  const unsigned char* high;
  int shift;  // for planes

  // `place`: index in the panel, a multiple of 16; `lane`: the first output.
  inline void at(const PackedShape& shape, const unsigned char* panel, int64_t place, int lane) {
    const unsigned char* const block = panel + place / kBlockPlaces * shape.block_bytes + lane * 4;
    const int half = (int)(place / 16 % 2);
    low = block + half * kLowBytes;
    high = block + 2 * kLowBytes + (kBits >= 8 ? half * 128 : 0);
    shift = half * 2;
  }
  // Codes of line `line` of the half block in nibbles. Of fewer than 4 bits the rest is noise.
  inline Bits nibbles(int line) const {
    if constexpr (kBits >= 4) return load_bits(low + line * 64);
    const Bits two = load_bits(low) >> (2 * line);
    if constexpr (kBits == 2) return two;
    constexpr int kThird = 0x44444444;
    return (two & ~kThird) | ((load_bits(high) >> shift << (2 - line)) & kThird);
  }
  // The value of nibble `nibble` of line `line`, whose nibbles() are `codes`.
  inline Vec value(int centre, const Table& table, Bits codes, int line, int nibble) const {
    const Bits word = codes >> (4 * nibble);
    if constexpr (kBits < 4) {
      return look_up_three(table, word);
    } else if constexpr (kBits == 4) {
      return look_up(table, word);
    } else if constexpr (kBits == kE4m3) {
      // Sign and the exponent's high bits end in the word's first byte, as in an f32.
      const Bits top = load_bits(high + line * 64) << (28 - 4 * nibble) >> 4;
      return (Vec)((top & (int)0x87000000) | ((word & 15) << 20)) * 0x1p120f;
    } else {
      Bits code = word & 15;
      if constexpr (kBits == 8) {
        code |= ((load_bits(high + line * 64) >> (4 * nibble)) & 15) << 4;
      } else {
        const int bit = 4 * nibble + line + shift;
        code |= ((load_bits(high) >> bit) & 1) << 4;
        if constexpr (kBits == 6) code |= ((load_bits(high + 64) >> bit) & 1) << 5;
      }
      return to_floats(code - centre);
    }
  }
};

// One step of kRows rows and kPanels panels, for kLanes outputs from `lane` on.
template <int kBits, int kRows, int kPanels>
inline void multiply_step(const PackedTask& task, const Table& table, int64_t step, int lane,
                          const Numbers* numbers, int64_t number, Vec (&out)[kPanels][kRows]) {
  const PackedShape& shape = *task.shape;
  const float* const x = (const float*)task.x + step * task.step;
  const int64_t left = shape.blocks * kBlockPlaces - step * task.step;  // the last may be short
  const int64_t places = left < task.step ? left : task.step;
  Vec sums[kPanels][kRows][4] = {};
  for (int64_t place = 0; place < places; place += 16) {
#pragma GCC unroll 2
    for (int panel = 0; panel < kPanels; ++panel) {
      Codes<kBits> codes;
      codes.at(shape, task.panel[panel], step * task.step + place, lane);
#pragma GCC unroll 2
      for (int line = 0; line < 2; ++line) {
        const Bits nibbles = codes.nibbles(line);
#pragma GCC unroll 8
        for (int nibble = 0; nibble < 8; ++nibble) {
          const Vec value = codes.value(shape.centre, table, nibbles, line, nibble);
          const float* const at = x + place + 8 * line + 2 * (nibble % 4) + nibble / 4;
#pragma GCC unroll 4
          for (int row = 0; row < kRows; ++row) {
            Vec& sum = sums[panel][row][nibble % 4];
            sum = fma(value, all(at[row * task.x_stride]), sum);
          }
        }
      }
    }
  }
// Unrolled, or sums and outputs would go through memory, which takes longer than 16 places.
#pragma GCC unroll 2
  for (int panel = 0; panel < kPanels; ++panel) {
    const Vec scale = load_vec(numbers[panel].scales + number * kPanelColumns + lane);
    const Vec offset = load_vec(numbers[panel].offsets + number * kPanelColumns + lane);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const Vec* const s = sums[panel][row];
      Vec dot = (s[0] + s[1]) + (s[2] + s[3]);
      const int64_t at = row * task.step_stride + step;
      if (task.x_scales != nullptr) dot = dot * (task.x_scales[at] * shape.table_unit);
      Vec& sum = out[panel][row];
      sum = fma(scale, dot, sum);
      if (task.sums != nullptr) sum = fma(offset, all(task.sums[at]), sum);
    }
  }
}

// Outputs of kRows rows and kPanels panels in registers, from `lane` on, between steps.
template <int kRows, int kPanels>
inline void load_outputs(const float* y, int lane, Vec (&out)[kPanels][kRows]) {
#pragma GCC unroll 2
  for (int panel = 0; panel < kPanels; ++panel) {
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      out[panel][row] = load_vec(y + (row * kPanelsAtOnce + panel) * kPanelColumns + lane);
    }
  }
}
template <int kRows, int kPanels>
inline void store_outputs(const Vec (&out)[kPanels][kRows], int lane, float* y) {
#pragma GCC unroll 2
  for (int panel = 0; panel < kPanels; ++panel) {
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      store_vec(y + (row * kPanelsAtOnce + panel) * kPanelColumns + lane, out[panel][row]);
    }
  }
}

template <int kBits, int kRows, int kPanels>
void multiply(const PackedTask& task) {
  const PackedShape& shape = *task.shape;
  const int64_t steps = (shape.blocks * kBlockPlaces + task.step - 1) / task.step;
  const int64_t at_once = kChunkPlaces / task.step;
  Table table = {};
  if constexpr (kBits <= 4) table = load_table(shape.table);
  Numbers numbers[kPanels];
  for (int i = 0; i < kRows * kPanelsAtOnce * kPanelColumns; ++i) task.y[i] = 0;
  for (int64_t first = 0; first < steps; first += at_once) {
    const int64_t count = steps - first < at_once ? steps - first : at_once;
    prefetch_numbers<kPanels>(task, first, count, steps);
    for (int panel = 0; panel < kPanels; ++panel) {
      widen_numbers(shape, task.panel[panel], task.step, first, count, &numbers[panel]);
    }
    for (int lane = 0; lane < kPanelColumns; lane += kLanes) {
      Vec out[kPanels][kRows];
      load_outputs(task.y, lane, out);
      for (int64_t i = 0; i < count; ++i) {
        multiply_step<kBits, kRows, kPanels>(task, table, first + i, lane, numbers, i, out);
      }
      store_outputs(out, lane, task.y);
    }
  }
}

template <int kBits>
void multiply_rows(const PackedTask& task) {
  if constexpr (kMaxRows >= 4) {
    if (task.rows == 4) return multiply<kBits, 4, 1>(task);
    if (task.rows == 3) return multiply<kBits, 3, 1>(task);
    if (task.rows == 2) {
      return task.panels == 2 ? multiply<kBits, 2, 2>(task) : multiply<kBits, 2, 1>(task);
    }
  }
  task.panels == 2 ? multiply<kBits, 1, 2>(task) : multiply<kBits, 1, 1>(task);
}

// Calls start<kBits>() for the shape's codes.
template <typename Start>
inline void with_bits(const PackedShape& shape, const Start& start) {
  switch (shape.bits) {
    case 2:
      return start.template operator()<2>();
    case 3:
      return start.template operator()<3>();
    case 4:
      return start.template operator()<4>();
    case 5:
      return start.template operator()<5>();
    case 6:
      return start.template operator()<6>();
    default:
      return shape.is_float ? start.template operator()<kE4m3>() : start.template operator()<8>();
  }
}

void multiply_f32(const PackedTask& task) {
  with_bits(*task.shape, [&]<int kBits>() { multiply_rows<kBits>(task); });
}

inline void store_rounded(unsigned short* out, Vec values) {
  typedef unsigned Words __attribute__((vector_size(sizeof(Vec))));
  typedef unsigned short Halves __attribute__((vector_size(kLanes * 2)));
  const Words bits = (Words)values;
  const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Words quiet = (bits >> 16) | 0x40u;
  const Words is_nan = (Words)((bits & 0x7fffffffu) > 0x7f800000u);
  const Halves halves = __builtin_convertvector((is_nan & quiet) | (~is_nan & rounded), Halves);
  __builtin_memcpy(out, &halves, sizeof(halves));
}

// Output of a panel's unpacked values, for kLanes outputs.
template <bool kBF16>
struct Unpacked {
  unsigned char* out;
  int64_t row;  // bytes from an input to the next

  inline void store(int64_t input, Vec value) const {
    unsigned char* const at = out + input * row;
    if constexpr (kBF16) {
      store_rounded((unsigned short*)at, value);
    } else {
      store_vec((float*)at, value);
    }
  }
};

// Unpacks sixteen places. inputs(i): the input of place i, -1: none.
template <int kBits, bool kBF16, typename Inputs>
inline void unpack_half(const Codes<kBits>& codes, int centre, const Table& table, Vec scale,
                        Vec offset, Unpacked<kBF16> to, Inputs inputs) {
#pragma GCC unroll 2
  for (int line = 0; line < 2; ++line) {
    const Bits nibbles = codes.nibbles(line);
#pragma GCC unroll 8
    for (int nibble = 0; nibble < 8; ++nibble) {
      // Not fused: integer times scale, then plus zero point, is exact to one rounding.
      const Vec value = scale * codes.value(centre, table, nibbles, line, nibble) + offset;
      const int64_t input = inputs(8 * line + 2 * (nibble % 4) + nibble / 4);
      if (input >= 0) to.store(input, value);
    }
  }
}

template <int kBits, bool kBF16>
void unpack_panel(const UnpackTask& task) {
  constexpr int kBytes = kBF16 ? 2 : 4;
  const PackedShape shape = *task.shape;  // a copy: stores could alias it otherwise
  const int32_t* const order = task.order;
  const int64_t most = task.inputs;
  const Unpacked<kBF16> to = {(unsigned char*)task.out, task.stride * kBytes};
  Table table = {};
  if constexpr (kBits <= 4) table = load_table(shape.table);
  Vec scale[kHalves];
  Vec offset[kHalves];
  int64_t group = -1;
  for (int64_t first = 0; first < shape.blocks * kBlockPlaces; first += 16) {
    const int64_t next = first / shape.group;
    for (int half = 0; half < kHalves && next != group; ++half) {
      const SuperNumbers super = super_of(shape, task.panel, next, half * kLanes);
      scale[half] = scale_of(shape, task.panel, next, half * kLanes, super);
      offset[half] = offset_of(shape, task.panel, next, half * kLanes, scale[half], super);
    }
    group = next;
    for (int half = 0; half < kHalves; ++half) {
      Codes<kBits> codes;
      codes.at(shape, task.panel, first, half * kLanes);
      const Unpacked<kBF16> part = {to.out + half * kLanes * kBytes, to.row};
      if (order == nullptr && first + 16 <= most) {
        unpack_half(codes, shape.centre, table, scale[half], offset[half], part,
                    [=](int i) { return first + i; });
      } else {
        unpack_half(codes, shape.centre, table, scale[half], offset[half], part, [=](int i) {
          const int64_t input = order == nullptr ? first + i : order[first + i];
          return input < most ? input : -1;
        });
      }
    }
  }
}

void unpack(const UnpackTask& task) {
  with_bits(*task.shape, [&]<int kBits>() {
    task.bf16 ? unpack_panel<kBits, true>(task) : unpack_panel<kBits, false>(task);
  });
}

}  // namespace
}  // namespace fasa::cpu
