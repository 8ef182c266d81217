// Vectors of 4 lanes for the packed bodies, which add tables to those of the row bodies. See
// packed_body_inl.h for what a vector header offers.
#pragma once

#include "kernels/cpu/rows/row_vector_portable.h"

namespace fasa::cpu {
namespace {

constexpr int kTwoPanelRows = 1;

struct Table {
  float values[16];
};
inline Table load_table(const float* values) {
  Table table;
  for (int i = 0; i < 16; ++i) table.values[i] = values[i];
  return table;
}
// Selects by the low 4 bits of each lane.
inline Vec look_up(const Table& table, Bits code) {
  return Vec{table.values[code[0] & 15], table.values[code[1] & 15], table.values[code[2] & 15],
             table.values[code[3] & 15]};
}

// Selects by the low 3 bits, from a table that repeats after 8 values or fewer.
inline Vec look_up_three(const Table& table, Bits code) { return look_up(table, code); }

inline Bits dot_pairs(Bits sum, Bits a, Bits b) {
#ifdef __SSE2__
  typedef short Shorts __attribute__((vector_size(16)));
  return sum + (Bits)__builtin_ia32_pmaddwd128((Shorts)a, (Shorts)b);
#else
  return sum + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}
inline Bits all_pairs(const short* at) {
  int two = 0;
  __builtin_memcpy(&two, at, sizeof(two));
  return two - Bits{};
}
struct ByteTable {
  int values[16];  // + 128, without sign
};
inline ByteTable load_byte_table(const signed char* values) {
  ByteTable table;
  for (int i = 0; i < 16; ++i) table.values[i] = values[i] + 128;
  return table;
}
inline Bits look_up_pairs(const ByteTable& table, Bits pair) {
  Bits values;
  for (int i = 0; i < kLanes; ++i) {
    values[i] = table.values[pair[i] & 15] | table.values[(pair[i] >> 16) & 15] << 16;
  }
  return values;
}

template <typename T>
inline Bits widened(const unsigned char* at) {
  T numbers[kLanes];
  __builtin_memcpy(numbers, at, sizeof(numbers));
  return Bits{numbers[0], numbers[1], numbers[2], numbers[3]};
}
inline Vec widen_i16(const unsigned char* at) {
  return __builtin_convertvector(widened<short>(at), Vec);
}
inline Bits load_u8(const unsigned char* at) { return widened<unsigned char>(at); }

}  // namespace
}  // namespace fasa::cpu
