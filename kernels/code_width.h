// The widths of codes in slices and value pages: a new one is added here and, in this order, to the
// tables of bodies (row_bodies_inl.h, low_bit_page_inl.h).
#pragma once

namespace fasa {

inline constexpr int kCodeWidths[] = {2, 4, 8};  // bits
inline constexpr int kCodeWidthCount = 3;

constexpr int code_width_index(int bits) {
  int index = 0;
  while (kCodeWidths[index] != bits) ++index;
  return index;
}

// What one step of a stored zero point is worth, in codes.
template <int kBits>
inline constexpr float kZeroUnit = kBits == 2   ? 0.5f
                                   : kBits == 4 ? 2.0f
                                                : 32.0f;

}  // namespace fasa
