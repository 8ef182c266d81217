// The body that multiplies packed weights by whole numbers of 16 bits, after packed_body_inl.h. Two
// places of an output are one 32-bit word, as they lie in a line (kernels/packed_format.h), and one
// instruction multiplies and adds both. A vector header defines dot_pairs(), which does that,
// all_pairs() of two numbers, and ByteTable with load_byte_table() and look_up_pairs() for words of
// two indices.
//
// A step's sums are exact: below 2^30 for 32 places, codes of 8 bits and numbers of 16. So their
// order, and the number of rows, are free.

#include "kernels/cpu/model/packed_body_inl.h"

namespace fasa::cpu {
namespace {

// Codes as pairs: low bits of `line` under a mask, a table's values plus 128, or 8-bit codes.
template <int kBits, bool kTable>
struct PairCodes {
  ByteTable table = {};

  explicit PairCodes(const PackedShape& shape) {
    if constexpr (kTable) table = load_byte_table(shape.byte_table);
  }
  inline Bits pair(const typename WeightCodes<kBits>::Line& line, int pair) const {
    constexpr int kTwice = 0x10001;
    constexpr int kLow = ((kBits < 4 ? 1 << kBits : 16) - 1) * kTwice;
    const Bits low = (line.low >> (4 * pair)) & kLow;
    if constexpr (kTable) return look_up_pairs(table, low);
    if constexpr (kBits <= 4) return low;
    constexpr int kAbove = ((1 << kBits) - 16) * kTwice;
    const Bits above = pair == 0 ? line.high << 4 : line.high >> (4 * pair - 4);
    return low | (above & kAbove);
  }
};

template <int kBits, bool kTable>
struct WholeStep {
  static constexpr int kMaxRows = kManyPackedRows;
  PairCodes<kBits, kTable> pairs;

  explicit WholeStep(const PackedShape& shape) : pairs(shape) {}

  // A half block of a panel.
  template <int kRows>
  [[gnu::always_inline]] inline void add(const PackedTask& task, const unsigned char* panel,
                                         int64_t place, int lane, Bits (&sums)[kRows]) const {
    WeightCodes<kBits> codes;
    codes.at(*task.shape, panel, place, lane);
    if (lane == 0) codes.prefetch();
    const auto* const x = activations<short>(task, place);
#pragma GCC unroll 2
    for (int line = 0; line < 2; ++line) {
      const auto held = codes.line(line);
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; ++pair) {
        const Bits values = pairs.pair(held, pair);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
          sums[row] =
              dot_pairs(sums[row], values, all_pairs(x + row * kBlockPlaces + 8 * line + 2 * pair));
        }
      }
    }
  }
  template <int kRows, int kPanels>
  [[gnu::always_inline]] inline void multiply(const PackedTask& task, int64_t step, int lane,
                                              const Groups<kPanels>& groups,
                                              Vec (&out)[kPanels][kRows]) const {
    const int64_t place = step * task.step;
    const PackedNumbers* const numbers = task.numbers + step * task.all_rows;
    Bits sums[kPanels][kRows];
#pragma GCC unroll 2
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) sums[panel][row] = numbers[row].base - Bits{};
      add(task, task.panel[panel], place, lane, sums[panel]);
    }
    if (task.step > 16) {
#pragma GCC unroll 2
      for (int panel = 0; panel < kPanels; ++panel) {
        add(task, task.panel[panel], place + 16, lane, sums[panel]);
      }
    }
    const auto dot = [&](int panel, int row, const PackedNumbers& of) {
      return floats_of(sums[panel][row]) * all(of.scale);
    };
    add_step<kRows, kPanels>(task, groups, step, lane, dot, out);
  }
};

void multiply_int16(const PackedTask& task) {
  with_bits(*task.shape, [&]<int kBits>() {
    if constexpr (kBits == 4) {
      task.shape->has_table ? multiply_rows<WholeStep<4, true>>(task)
                            : multiply_rows<WholeStep<4, false>>(task);
    } else if constexpr (kBits != kE4m3) {
      multiply_rows<WholeStep<kBits, false>>(task);
    }
  });
}

constexpr PackedBodies kPackedBodies = {multiply_f32, multiply_int16, nullptr,
                                        nullptr,      unpack,         kTwoPanelRows};

}  // namespace
}  // namespace fasa::cpu
