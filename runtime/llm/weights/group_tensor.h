// Shared by AWQ, GPTQ and compressed-tensors: integers of 4 or 8 bits with a scale, and optionally
// a zero, per group of inputs.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/llm/weights/packed_tensor.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {

// The scale kind that holds numbers of this type exactly.
inline ScaleKind scale_kind(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return ScaleKind::kF16;
    case DType::kBF16:
      return ScaleKind::kBF16;
    case DType::kF32:
      break;
  }
  return ScaleKind::kF32;
}

// value = (code - zero) * scale; zeros are stored relative to the middle of the code range.
inline PackedFormat integer_format(int bits, DType scales, bool zeros) {
  const OffsetKind offset = bits == 8 ? OffsetKind::kZero16 : OffsetKind::kZero;
  return {.bits = bits,
          .scale = scale_kind(scales),
          .offset = zeros ? offset : OffsetKind::kNone,
          .centre = 1 << (bits - 1)};
}

// A code of `bits` bits in 32-bit words, lowest first.
inline uint32_t code_in(uint32_t word, int bits, int64_t index) {
  return word >> (bits * index) & ((1u << bits) - 1);
}

}  // namespace fasa
