// Rows: finding, copying and reading them by warps.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/cuda/simt.h"
#include "kernels/params.h"
#include "kernels/row_codec_inl.h"

namespace fasa::cuda {

enum class NewRows : uint8_t { kInPages, kInWriteBackBuffer };

// Address of a position's row: new rows of a prefill in the write-back buffer, the page's device
// copy, the pages copied for this call, or the row blocks.
FASA_DEVICE const std::byte* row_at(const StepParams& step, int sequence, int kv_head, int position,
                                    const CopiedPages& pages, NewRows fresh) {
  const CacheLayout& layout = step.layout;
  const SequenceDesc& desc = step.sequences[sequence];
  const int page = position / kPageTokens;
  const int64_t in_head = position % kPageTokens * layout.row.bytes();
  if (fresh == NewRows::kInWriteBackBuffer && desc.write_back_buffer != nullptr &&
      position >= desc.start) {
    return step.write_back_row(desc, kv_head, position);
  }
  const int64_t in_block = layout.row_offset(step.layer, kv_head, 0) + in_head;
  const std::byte* device = desc.device_row_block(page);
  if (device != nullptr) return device + in_block;
  const int at = page - pages.first_page;
  if (pages.data != nullptr && at >= 0 && at < pages.pages) {
    const int64_t copied = (int64_t{sequence} * pages.pages + at) * layout.kv_heads + kv_head;
    return pages.data + copied * layout.row_head_bytes() + in_head;
  }
  return desc.row_blocks[page] + in_block;
}

// Copies a row by the lanes of one warp; rows are whole words.
FASA_DEVICE void copy_row(std::byte* to, const std::byte* from, int64_t row_bytes) {
  const int words = static_cast<int>(row_bytes / static_cast<int64_t>(sizeof(simt::Word16)));
  for (int i = simt::lane(); i < words; i += simt::kWarpThreads) {
    reinterpret_cast<simt::Word16*>(to)[i] = reinterpret_cast<const simt::Word16*>(from)[i];
  }
}

// The scale of a whole coded vector (row_format.h): sixteen parities of its codes. Each thread
// computes it alone.
FASA_DEVICE float scale_of(const std::byte* codes, int dim) {
  simt::Word16 all = {};
  int d = 0;
  if (reinterpret_cast<uintptr_t>(codes) % sizeof(simt::Word16) == 0) {
    for (; d + kScaleBits <= dim; d += kScaleBits) {
      const simt::Word16 more = *reinterpret_cast<const simt::Word16*>(codes + d);
      FASA_UNROLL
      for (int i = 0; i < 4; ++i) all.words[i] ^= more.words[i];
    }
  }
  uint32_t bits = 0;
  FASA_UNROLL
  for (int i = 0; i < 4; ++i) {  // the lowest bits of a word's bytes, packed
    bits |= ((all.words[i] & 0x01010101u) * 0x01020408u >> 24 & 15u) << (4 * i);
  }
  for (; d < dim; ++d) bits ^= (static_cast<uint32_t>(codes[d]) & 1u) << (d % kScaleBits);
  return simt::float_of(bits << 16);
}
FASA_DEVICE float code_at(const std::byte* codes, int d) {
  return static_cast<float>(static_cast<int8_t>(codes[d]));
}

// A key or value of a row, element by element.
struct RowVector {
  RowDType dtype;
  const std::byte* data = nullptr;
  float scale = 1;  // if it is coded

  FASA_DEVICE static RowVector of(RowDType dtype, const std::byte* data, int dim) {
    return {dtype, data, dtype.is_coded() ? scale_of(data, dim) : 1.0f};
  }
  FASA_DEVICE float at(int d) const {
    return dtype.is_coded() ? code_at(data, d) * scale : load(dtype.elements(), data, d);
  }
};

struct Pair {
  float low = 0;
  float high = 0;
};

// How a vector's pairs are loaded: as one word if every vector of a row begins at a whole pair.
struct PairFormat {
  int dim = 0;
  bool aligned = false;

  FASA_DEVICE int pairs() const { return (dim + 1) / 2; }
};

// An element of a row, or its code.
template <RowDType::Kind kRow>
FASA_DEVICE float load_stored(const std::byte* vector, int d) {
  if constexpr (kRow == RowDType::kInt8) {
    return code_at(vector, d);
  } else {
    return load(RowDType(kRow).elements(), vector, d);
  }
}

// Elements 2 x `pair` and the next one, or their codes; 0 beyond the end.
template <RowDType::Kind kRow>
FASA_DEVICE Pair load_pair(const std::byte* vector, int pair, const PairFormat& format) {
  if (!format.aligned) {
    const int first = 2 * pair;
    return {load_stored<kRow>(vector, first),
            first + 1 < format.dim ? load_stored<kRow>(vector, first + 1) : 0.0f};
  }
  if constexpr (kRow == RowDType::kInt8) {
    const uint16_t codes = reinterpret_cast<const uint16_t*>(vector)[pair];
    return {static_cast<float>(static_cast<int8_t>(codes & 0xffu)),
            static_cast<float>(static_cast<int8_t>(codes >> 8))};
  } else if constexpr (kRow == RowDType::kF32) {
    struct alignas(8) Floats {
      float low, high;
    };
    const Floats floats = reinterpret_cast<const Floats*>(vector)[pair];
    return {floats.low, floats.high};
  } else {
    const uint32_t word = reinterpret_cast<const uint32_t*>(vector)[pair];
    if constexpr (kRow == RowDType::kBF16) {
      return {simt::float_of(word << 16), simt::float_of(word & 0xffff0000u)};
    } else {
      return {float_of_f16(static_cast<uint16_t>(word)),
              float_of_f16(static_cast<uint16_t>(word >> 16))};
    }
  }
}

}  // namespace fasa::cuda
