// Bodies that multiply and unpack packed weights, for one instruction set. A vector header,
// included before, defines Vec and Bits (kLanes floats, ints), fma(), Table with load_table(),
// look_up() and look_up_three(), load_f16(), load_bf16(), load_int8(), widen_i16(), load_u8() of
// kLanes numbers, kTwoPanelRows, and what packed_whole_inl.h takes.
//
// In f32 a step's products go to four sums per output, by the pair index within the line. The sums
// are added as (0 + 1) + (2 + 3), scaled, and added to the output, in the same way for any number
// of rows and panels.

#include "kernels/cpu/model/packed_numbers_inl.h"

namespace fasa::cpu {
namespace {

constexpr int kHalves = kPanelColumns / kLanes;  // registers per line
// In place of a number of bits: 8 bits of a float.
constexpr int kE4m3 = 9;
// Prefetch distance: codes are read once, panel after panel, and the hardware prefetcher stops at
// each page.
constexpr int kAhead = 6144;  // bytes; 4096 and 12288 are 2 to 8 % slower, no prefetch 20 %

// The layout of codes in a half block (16 places), and their values in f32. Codes of at most 4 bits
// use the table, longer integers are relative to the centre.
template <int kBits>
struct WeightCodes {
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
  // Codes of a line of the half block in nibbles: their low bits, and the bits above. Of fewer than
  // 4 bits, and above 4, the rest is noise.
  inline void prefetch() const {
    __builtin_prefetch(low + kAhead);
    __builtin_prefetch(low + 64 + kAhead);
    if (kHasPlanes || kBits >= 8) __builtin_prefetch(high + kAhead);
    if (kBits >= 8) __builtin_prefetch(high + 64 + kAhead);
  }
  struct Line {
    Bits low;
    Bits high;
  };
  inline Line line(int line) const {
    if constexpr (kBits == 4) return {load_bits(low + line * 64), Bits{}};
    if constexpr (kBits >= 8) return {load_bits(low + line * 64), load_bits(high + line * 64)};
    if constexpr (kBits > 4) {
      const Bits fifth = load_bits(high) >> (shift + line);
      if constexpr (kBits == 5) return {load_bits(low + line * 64), fifth};
      constexpr int kSixth = 0x22222222;
      const Bits sixth = load_bits(high + 64) >> (shift + line) << 1;
      return {load_bits(low + line * 64), (fifth & ~kSixth) | (sixth & kSixth)};
    }
    const Bits two = load_bits(low) >> (2 * line);
    if constexpr (kBits == 2) return {two, Bits{}};
    constexpr int kThird = 0x44444444;
    return {(two & ~kThird) | ((load_bits(high) >> shift << (2 - line)) & kThird), Bits{}};
  }
  // The value of nibble `nibble` of a line.
  inline Vec value(int centre, const Table& table, const Line& line, int nibble) const {
    const Bits word = line.low >> (4 * nibble);
    if constexpr (kBits < 4) {
      return look_up_three(table, word);
    } else if constexpr (kBits == 4) {
      return look_up(table, word);
    } else if constexpr (kBits == kE4m3) {
      // Sign and the exponent's high bits end in the word's first byte, as in an f32.
      const Bits top = line.high << (28 - 4 * nibble) >> 4;
      return (Vec)((top & (int)0x87000000) | ((word & 15) << 20)) * 0x1p120f;
    } else {
      const Bits above = nibble == 0 ? line.high << 4 : line.high >> (4 * nibble - 4);
      constexpr int kAbove = (1 << kBits) - 16;
      return floats_of(((word & 15) | (above & kAbove)) - centre);
    }
  }
};

// One step of kRows rows and kPanels panels in f32, for kLanes outputs from `lane` on.
template <int kBits>
struct FloatStep {
  static constexpr int kMaxRows = kFewPackedRows;
  Table table = {};

  explicit FloatStep(const PackedShape& shape) {
    if constexpr (kBits <= 4) table = load_table(shape.table);
  }
  template <int kRows, int kPanels>
  [[gnu::always_inline]] inline void multiply(const PackedTask& task, int64_t step, int lane,
                                              const Groups<kPanels>& groups,
                                              Vec (&out)[kPanels][kRows]) const {
    const PackedShape& shape = *task.shape;
    const int64_t left = shape.blocks * kBlockPlaces - step * task.step;  // the last may be short
    const int64_t places = left < task.step ? left : task.step;
    Vec sums[kPanels][kRows][4] = {};
    for (int64_t place = 0; place < places; place += 16) {
      const auto* const x = activations<float>(task, step * task.step + place);
#pragma GCC unroll 2
      for (int panel = 0; panel < kPanels; ++panel) {
        WeightCodes<kBits> codes;
        codes.at(shape, task.panel[panel], step * task.step + place, lane);
#pragma GCC unroll 2
        for (int line = 0; line < 2; ++line) {
          const auto held = codes.line(line);
#pragma GCC unroll 8
          for (int nibble = 0; nibble < 8; ++nibble) {
            const Vec value = codes.value(shape.centre, table, held, nibble);
            const float* const at = x + 8 * line + 2 * (nibble % 4) + nibble / 4;
#pragma GCC unroll 4
            for (int row = 0; row < kRows; ++row) {
              Vec& sum = sums[panel][row][nibble % 4];
              sum = fma(value, all(at[row * kBlockPlaces]), sum);
            }
          }
        }
      }
    }
    const auto dot = [&](int panel, int row, const PackedNumbers&) {
      const Vec* const s = sums[panel][row];
      return (s[0] + s[1]) + (s[2] + s[3]);
    };
    add_step<kRows, kPanels>(task, groups, step, lane, dot, out);
  }
};

// Outputs of kRows rows and kPanels panels in registers, from `lane` on, between steps.
template <int kRows, int kPanels>
inline void load_outputs(const float* y, int lane, Vec (&out)[kPanels][kRows]) {
#pragma GCC unroll 2
  for (int panel = 0; panel < kPanels; ++panel) {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      out[panel][row] = load_vec(y + (row * kPanelsAtOnce + panel) * kPanelColumns + lane);
    }
  }
}
template <int kRows, int kPanels>
inline void store_outputs(const Vec (&out)[kPanels][kRows], int lane, float* y) {
#pragma GCC unroll 2
  for (int panel = 0; panel < kPanels; ++panel) {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      store_vec(y + (row * kPanelsAtOnce + panel) * kPanelColumns + lane, out[panel][row]);
    }
  }
}

template <typename Step, int kRows, int kPanels>
void multiply_with(const PackedTask& task) {
  const PackedShape& shape = *task.shape;
  const int64_t steps = (shape.blocks * kBlockPlaces + task.step - 1) / task.step;
  const int64_t at_once = kChunkPlaces / task.step;
  const Step body(shape);
  Groups<kPanels> groups(task);
  for (int i = 0; i < kRows * kPanelsAtOnce * kPanelColumns; ++i) task.y[i] = 0;
  for (int64_t first = 0; first < steps; first += at_once) {
    const int64_t count = steps - first < at_once ? steps - first : at_once;
    prefetch_numbers<kPanels>(task, first, count, steps);
    const Groups<kPanels> begin = groups;
    for (int lane = 0; lane < kPanelColumns; lane += kLanes) {
      Vec out[kPanels][kRows];
      load_outputs(task.y, lane, out);
      groups = begin;
      groups.widen(task, lane);
      for (int64_t step = first; step < first + count; ++step) {
        if (step * task.step % kSuperPlaces == 0) groups.widen(task, lane);
        body.multiply(task, step, lane, groups, out);
        groups.next();
      }
      store_outputs(out, lane, task.y);
    }
  }
}

// Calls start<kRows>() for the number of rows, at most kMaxRows.
template <int kMaxRows, typename Start>
inline void with_rows(int rows, const Start& start) {
  if constexpr (kMaxRows > 1) {
    if (rows < kMaxRows) return with_rows<kMaxRows - 1>(rows, start);
  }
  start.template operator()<kMaxRows>();
}

template <typename Step>
void multiply_rows(const PackedTask& task) {
  with_rows<Step::kMaxRows>(task.rows, [&]<int kRows>() {
    if constexpr (kRows <= kTwoPanelRows) {
      if (task.panels == 2) return multiply_with<Step, kRows, 2>(task);
    }
    multiply_with<Step, kRows, 1>(task);
  });
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

// Other codes are whole numbers.
void multiply_f32(const PackedTask& task) {
  task.shape->is_float ? multiply_rows<FloatStep<kE4m3>>(task) : multiply_rows<FloatStep<4>>(task);
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
inline void unpack_half(const WeightCodes<kBits>& codes, int centre, const Table& table, Vec scale,
                        Vec offset, Unpacked<kBF16> to, Inputs inputs) {
#pragma GCC unroll 2
  for (int line = 0; line < 2; ++line) {
    const auto held = codes.line(line);
#pragma GCC unroll 8
    for (int nibble = 0; nibble < 8; ++nibble) {
      // Not fused: integer times scale, then plus zero point, is exact to one rounding.
      const Vec value = scale * codes.value(centre, table, held, nibble) + offset;
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
      WeightCodes<kBits> codes;
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
