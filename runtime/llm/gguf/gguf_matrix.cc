#include "runtime/llm/gguf/gguf_matrix.h"

#include <cmath>
#include <cstring>

#include "runtime/base/dtype.h"
#include "runtime/llm/weights/weight_source.h"

namespace fasa {
namespace {

float f16_at(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return f32_from_f16(bits);
}
uint8_t byte_at(const std::byte* at) { return static_cast<uint8_t>(*at); }

PackedFormat format_of(GgmlType type) {
  constexpr int kBlock = 32;
  const auto plain = [](int bits, int centre) {
    return PackedFormat{.bits = bits, .group = kBlock, .centre = centre};
  };
  const auto with_least = [](int bits) {
    return PackedFormat{.bits = bits, .group = kBlock, .offset = OffsetKind::kF16};
  };
  const auto super = [](int bits) {
    return PackedFormat{
        .bits = bits, .group = kBlock, .scale = ScaleKind::kSuper, .offset = OffsetKind::kSuper};
  };
  switch (type) {
    case GgmlType::kQ40:
      return plain(4, 8);
    case GgmlType::kQ50:
      return plain(5, 16);
    case GgmlType::kQ80:
      return plain(8, 128);
    case GgmlType::kQ41:
      return with_least(4);
    case GgmlType::kQ51:
      return with_least(5);
    case GgmlType::kQ4K:
      return super(4);
    case GgmlType::kQ5K:
      return super(5);
    case GgmlType::kQ6K:
      return {.bits = 6, .group = 16, .scale = ScaleKind::kSuper, .centre = 32};
    case GgmlType::kMxfp4:
      return mxfp4_format();
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      break;
  }
  return {};
}

// Destinations of a block's parts.
struct BlockTarget {
  uint8_t* codes;
  float* scales;
  float* offsets;
  float* super_scale;
  float* super_offset;
};

// Blocks of 32: low nibbles hold the first half. `high`: the fifth bits, or null.
void read_nibbles(const std::byte* nibbles, const std::byte* high, uint8_t* codes) {
  uint32_t bits = 0;
  if (high != nullptr) std::memcpy(&bits, high, sizeof(bits));
  for (int i = 0; i < 16; ++i) {
    const uint8_t pair = byte_at(nibbles + i);
    codes[i] = static_cast<uint8_t>((pair & 15) | (bits >> i & 1) << 4);
    codes[i + 16] = static_cast<uint8_t>(pair >> 4 | (bits >> (i + 16) & 1) << 4);
  }
}

// Six-bit scales and minima of eight groups in twelve bytes.
void read_six_bits(const std::byte* at, float* scales, float* offsets) {
  for (int i = 0; i < 8; ++i) {
    if (i < 4) {
      scales[i] = static_cast<float>(byte_at(at + i) & 63);
      offsets[i] = static_cast<float>(byte_at(at + i + 4) & 63);
    } else {
      const int low = byte_at(at + i + 4);
      scales[i] = static_cast<float>((low & 15) | byte_at(at + i - 4) >> 6 << 4);
      offsets[i] = static_cast<float>(low >> 4 | byte_at(at + i) >> 6 << 4);
    }
  }
}

// Q4_K, Q5_K: per 64 elements the low nibbles of 32 bytes, then the high ones; bit i of `high`
// belongs to the i-th 32.
void read_super_nibbles(const std::byte* nibbles, const std::byte* high, uint8_t* codes) {
  for (int group = 0; group < 8; ++group) {
    for (int i = 0; i < 32; ++i) {
      const uint8_t pair = byte_at(nibbles + group / 2 * 32 + i);
      int code = group % 2 == 0 ? pair & 15 : pair >> 4;
      if (high != nullptr) code |= (byte_at(high + i) >> group & 1) << 4;
      codes[group * 32 + i] = static_cast<uint8_t>(code);
    }
  }
}

// Q6_K: per 128 elements 64 bytes of low nibbles and 32 of two bits.
void read_q6(const std::byte* low, const std::byte* high, uint8_t* codes) {
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 128; ++i) {
      const uint8_t pair = byte_at(low + half * 64 + i % 64);
      const uint8_t bits = byte_at(high + half * 32 + i % 32);
      const int code = (i < 64 ? pair & 15 : pair >> 4) | (bits >> (i / 32 * 2) & 3) << 4;
      codes[half * 128 + i] = static_cast<uint8_t>(code);
    }
  }
}

void read_block(GgmlType type, const std::byte* at, const BlockTarget& to) {
  switch (type) {
    case GgmlType::kQ40:
      *to.scales = f16_at(at);
      return read_nibbles(at + 2, nullptr, to.codes);
    case GgmlType::kQ41:
      *to.scales = f16_at(at);
      *to.offsets = f16_at(at + 2);
      return read_nibbles(at + 4, nullptr, to.codes);
    case GgmlType::kQ50:
      *to.scales = f16_at(at);
      return read_nibbles(at + 6, at + 2, to.codes);
    case GgmlType::kQ51:
      *to.scales = f16_at(at);
      *to.offsets = f16_at(at + 2);
      return read_nibbles(at + 8, at + 4, to.codes);
    case GgmlType::kQ80:
      *to.scales = f16_at(at);
      for (int i = 0; i < 32; ++i) to.codes[i] = byte_at(at + 2 + i) ^ 0x80;
      return;
    case GgmlType::kMxfp4:
      *to.scales = std::ldexp(1.0f, byte_at(at) - kMxfp4Bias);
      return read_nibbles(at + 1, nullptr, to.codes);
    case GgmlType::kQ4K:
    case GgmlType::kQ5K: {
      *to.super_scale = f16_at(at);
      *to.super_offset = f16_at(at + 2);
      read_six_bits(at + 4, to.scales, to.offsets);
      const bool five = type == GgmlType::kQ5K;
      return read_super_nibbles(at + (five ? 48 : 16), five ? at + 16 : nullptr, to.codes);
    }
    case GgmlType::kQ6K:
      for (int i = 0; i < 16; ++i) {
        to.scales[i] = static_cast<float>(static_cast<int8_t>(at[192 + i]));
      }
      *to.super_scale = f16_at(at + 208);
      return read_q6(at, at + 128, to.codes);
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      return;
  }
}

class GgufMatrix final : public PackedTensor {
 public:
  GgufMatrix(const GgufTensor& tensor, const std::byte* data, const GgufRows& rows)
      : PackedTensor(tensor.shape[0], tensor.shape[1]),
        block_(*tensor.block),
        data_(data),
        rows_(rows) {
    if (block_.elements == 1) {
      set_unpackable();
    } else {
      set_format(format_of(block_.type));
    }
  }

  void read(int64_t first, int64_t count, CodeRows* out) const override {
    const int64_t blocks = inputs() / block_.elements;
    const int64_t groups = block_.elements / format().group;
    for (int64_t i = 0; i < count; ++i) {
      const std::byte* at = row(first + i);
      for (int64_t block = 0; block < blocks; ++block, at += block_.bytes) {
        read_block(
            block_.type, at,
            {.codes = out->codes(i) + block * block_.elements,
             .scales = out->scales(i) + block * groups,
             .offsets = out->offsets(i) + block * groups,
             .super_scale = out->super_scales(i) + block * block_.elements / kPackedSuper,
             .super_offset = out->super_offsets(i) + block * block_.elements / kPackedSuper});
      }
    }
  }

  void dequantise(int64_t first, int64_t count, float* out) const override {
    if (packs()) return PackedTensor::dequantise(first, count, out);
    WeightView view;
    view.dtype = block_.type == GgmlType::kF32
                     ? DType::kF32
                     : (block_.type == GgmlType::kF16 ? DType::kF16 : DType::kBF16);
    for (int64_t i = 0; i < count; ++i) {
      view.data = row(first + i);
      view.read(0, inputs(), out + i * inputs());
    }
  }

 private:
  const std::byte* row(int64_t index) const {
    return data_ + rows_.in_file(index) * (inputs() / block_.elements * block_.bytes);
  }

  GgmlBlock block_;
  const std::byte* data_;
  GgufRows rows_;
};

}  // namespace

std::unique_ptr<PackedTensor> make_gguf_matrix(const GgufTensor& tensor, const std::byte* data,
                                               const GgufRows& rows) {
  return std::make_unique<GgufMatrix>(tensor, data, rows);
}

}  // namespace fasa
