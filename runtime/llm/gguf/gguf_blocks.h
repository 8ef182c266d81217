// Blocks of GGUF's types as codes and numbers of a panel format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_format.h"
#include "runtime/llm/gguf/gguf_types.h"

namespace fasa {

// Destinations of a block's parts.
struct BlockTarget {
  uint8_t* codes;
  float* scales;
  float* offsets;
  float* super_scale;
  float* super_offset;
};

// How a type's blocks are read. The format has the weights of the type's description, exactly.
struct BlockLayout {
  PackedFormat format;
  void (*read)(const std::byte* at, const BlockTarget& to) = nullptr;
};
// Without read() for the types that do not pack: F32, F16, BF16.
BlockLayout block_layout(GgmlType type);

}  // namespace fasa
