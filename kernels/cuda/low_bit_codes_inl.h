// Value codes as operands of tensor-core products (low_bit_pages_inl.h), and their sums.
#pragma once

#include "kernels/cuda/simt.h"

namespace fasa::cuda {

// Shared memory of the sums of values: for each warp and product, four floats per lane. The padding
// keeps the readers of consecutive dimensions in different banks.
struct LowBitSums {
  static constexpr int kStride = 4 * simt::kWarpThreads + 4;

  static constexpr int at(int product, int lane) { return product * kStride + 4 * lane; }
};

// Codes of a word in products: product i has dimensions of rows 2 i (its rows 0-7) and 2 i + 1
// (8-15) of the word's.
template <int kBits>
struct LowBitCodes {
  static constexpr int kUnit = 32 / kBits;     // dimensions of a word
  static constexpr int kPlaces = 8 / kBits;    // codes of a byte
  static constexpr int kProducts = kUnit / 2;  // 16 dimensions each, two of a word

  static constexpr int byte_of(int row) { return row / kPlaces; }
  // Bits below the code in its byte.
  static constexpr int shift_of(int row) { return row % kPlaces * kBits; }
  static constexpr int dim_of(int row) { return row % kPlaces * 4 + byte_of(row); }
  static constexpr int row_of(int dim) { return dim % 4 * kPlaces + dim / 4; }
  // The unit of the code in its byte.
  static constexpr float unit_of(int row) { return static_cast<float>(1 << shift_of(row)); }

  // The codes of a row's dimension in the words of two tokens, as subnormal f16.
  FASA_DEVICE static uint32_t pair(uint32_t first, uint32_t second, int row) {
    constexpr uint32_t kMask = ((1u << kBits) - 1) * 0x00010001u;
    return simt::pair_bytes(first, second, byte_of(row)) & (kMask << shift_of(row));
  }
};

// Parameters of a word's dimensions, in pairs, and the base of their scales.
template <int kBits>
struct LowBitParameters {
  static constexpr int kPairs = LowBitCodes<kBits>::kUnit / 2;
  struct alignas(4 * kPairs < 16 ? 4 * kPairs : 16) Pairs {
    uint32_t of[kPairs];
  };
  Pairs pairs = {};
  float base = 0;

  FASA_DEVICE int16_t operator[](int dim) const {
    return static_cast<int16_t>(pairs.of[dim / 2] >> dim % 2 * 16 & 0xffffu);
  }
};

}  // namespace fasa::cuda
