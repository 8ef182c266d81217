// The widths of codes in slices and value pages. A new one is added here and to slice_format.h.
#pragma once

namespace fasa {

// Widths in bits. Tables of bodies by width are made from AllCodeWidths and have its order.
template <int... kBits>
struct CodeWidths {
  static constexpr int kAll[] = {kBits...};
};
using AllCodeWidths = CodeWidths<2, 4, 8>;
inline constexpr int kCodeWidthCount = sizeof(AllCodeWidths::kAll) / sizeof(int);

constexpr int code_width_index(int bits) {
  int index = 0;
  while (AllCodeWidths::kAll[index] != bits) ++index;
  return index;
}

// Calls `call` with `bits`, one of the widths, as its template argument; on hosts and devices.
template <int kBits, int... kOthers, typename Call>
constexpr void with_code_width(int bits, CodeWidths<kBits, kOthers...>, const Call& call) {
  if constexpr (sizeof...(kOthers) > 0) {
    if (bits != kBits) return with_code_width(bits, CodeWidths<kOthers...>(), call);
  }
  call.template operator()<kBits>();
}

// What one step of a stored zero point is worth, in codes.
template <int kBits>
inline constexpr float kZeroUnit = static_cast<float>(1 << kBits) / 8;

}  // namespace fasa
