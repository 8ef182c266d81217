// Packed weights as one thread reads them: four adjacent outputs and the eight places of a line, 16
// bytes of each line and plane (kernels/packed_format.h).
//
// The processor's panel layout suits the GPU unchanged: a line is 16 outputs' words in a row, so a
// warp's loads are 512 contiguous bytes (8 bits: twice 256), and a thread's loads are of four
// outputs, which share the activations that it reads.
#pragma once

#include "kernels/cuda/element_inl.h"
#include "kernels/packed_params.h"

namespace fasa::cuda {

inline constexpr int kOutputs = 4;  // per thread
inline constexpr int kPlaces = static_cast<int>(kPackedLine);
inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kBlockLines = kPackedBlock / kPackedLine;

// Scales or offsets of kCount outputs as stored, 1, 2 or 4 bytes each.
template <int kCount>
struct PackedNumbers {
  uint32_t words[kCount];
};

template <int kCount>
FASA_DEVICE PackedNumbers<kCount> load_numbers(const std::byte* at, int64_t bytes) {
  struct alignas(4 * kCount) Words {
    uint32_t words[kCount];
  };
  struct alignas(2 * kCount) Halves {
    uint16_t halves[kCount];
  };
  struct alignas(kCount) Bytes {
    uint8_t bytes[kCount];
  };
  PackedNumbers<kCount> numbers{};
  if (bytes == 4) {
    const auto word = *reinterpret_cast<const Words*>(at);
    FASA_UNROLL
    for (int i = 0; i < kCount; ++i) numbers.words[i] = word.words[i];
  } else if (bytes == 2) {
    const auto word = *reinterpret_cast<const Halves*>(at);
    FASA_UNROLL
    for (int i = 0; i < kCount; ++i)
      numbers.words[i / 2] |= uint32_t{word.halves[i]} << 16 * (i % 2);
  } else {
    const auto word = *reinterpret_cast<const Bytes*>(at);
    FASA_UNROLL
    for (int i = 0; i < kCount; ++i) numbers.words[0] |= uint32_t{word.bytes[i]} << 8 * i;
  }
  return numbers;
}

template <int kCount>
FASA_DEVICE uint32_t half_of(const PackedNumbers<kCount>& numbers, int i) {
  return numbers.words[i / 2] >> 16 * (i % 2) & 0xffffu;
}
template <int kCount>
FASA_DEVICE uint32_t byte_of(const PackedNumbers<kCount>& numbers, int i) {
  return numbers.words[0] >> 8 * i & 0xffu;
}
template <int kCount>
FASA_DEVICE float f16_of(const PackedNumbers<kCount>& numbers, int i) {
  return float_of_f16(static_cast<uint16_t>(half_of(numbers, i)));
}

// The numbers of a scale group as stored.
template <int kCount>
struct PackedScales {
  PackedNumbers<kCount> scales{}, offsets{}, super_scales{}, super_offsets{};
};

// One line of codes being loaded, and its scale group's numbers.
template <int kBits>
struct PackedLine : PackedScales<kOutputs> {
  // 8 bits: the line of the high nibbles. Else planes of the bits above the line's.
  static constexpr int kLineBits = kBits < 4 ? 2 : 4;
  static constexpr int kHigh = kBits == 8 ? 1 : kBits - kLineBits;

  int64_t place = 0;   // the line's first place
  bool there = false;  // false: beyond the end, nothing was loaded
  simt::Word16 low{};
  simt::Word16 high[kHigh > 0 ? kHigh : 1] = {};
};

// Reads the panels of one format.
template <int kBits>
struct PackedReader {
  PackedWeights weights;
  uint64_t group_reciprocal;  // 2^32 / (group / kUnit), rounded up
  static constexpr int64_t kUnit = 16;

  // Computes group_reciprocal: a division per line would cost more than its sums.
  static PackedReader of(const PackedWeights& weights) {
    const auto units = static_cast<uint64_t>(weights.format.group / kUnit);
    return {weights, ((uint64_t{1} << 32) + units - 1) / units};
  }

  FASA_DEVICE const std::byte* panel_at(int64_t index) const {
    return weights.panels + index * weights.panel.bytes;
  }
  // Loads line `line` of the panel `from` for outputs [quad x kOutputs, ...).
  FASA_DEVICE PackedLine<kBits> fetch(const std::byte* from, int64_t line, int quad) const {
    const PackedPanel& panel = weights.panel;
    PackedLine<kBits> got;
    got.place = line * kPackedLine;
    got.there = got.place < (weights.order == nullptr ? weights.inputs : weights.places());
    if (!got.there) return got;
    const std::byte* const block =
        from + line / kBlockLines * panel.block_bytes + quad * int64_t{sizeof(simt::Word16)};
    constexpr int64_t kLinesInOne = 4 / PackedLine<kBits>::kLineBits;
    const std::byte* const high = block + kBlockLines / kLinesInOne * kLineBytes;
    got.low = word_at(block + line % kBlockLines / kLinesInOne * kLineBytes);
    FASA_UNROLL
    for (int i = 0; i < PackedLine<kBits>::kHigh; ++i) {
      got.high[i] = word_at(high + (kBits == 8 ? line % kBlockLines : i) * kLineBytes);
    }
    fetch_numbers<kOutputs>(from, got.place, quad * kOutputs, got);
    return got;
  }

  // Loads the numbers of outputs [output, output + kCount) for the scale group of `place`.
  template <int kCount>
  FASA_DEVICE void fetch_numbers(const std::byte* from, int64_t place, int output,
                                 PackedScales<kCount>& to) const {
    const PackedPanel& panel = weights.panel;
    const int64_t at = group_of(place) * kPackedColumns + output;
    const int64_t super = (place / kPackedSuper * kPackedColumns + output) * 2;
    const int64_t scale_size = scale_bytes(weights.format.scale);
    to.scales = load_numbers<kCount>(from + panel.scales + at * scale_size, scale_size);
    if (has_super(weights.format.scale)) {
      to.super_scales = load_numbers<kCount>(from + panel.super_scales + super, 2);
    }
    if (!has_offsets()) return;
    const int64_t offset_size = offset_bytes(weights.format.offset);
    if (offset_size > 0) {
      to.offsets = load_numbers<kCount>(from + panel.offsets + at * offset_size, offset_size);
    }
    if (has_super(weights.format.offset)) {
      to.super_offsets = load_numbers<kCount>(from + panel.super_offsets + super, 2);
    }
  }
  // Converts scales and offsets to f32.
  template <int kCount>
  FASA_DEVICE void numbers(const PackedScales<kCount>& stored, float (&scales)[kCount],
                           float (&offsets)[kCount]) const {
    load_scales(stored, scales);
    load_offsets(stored, scales, offsets);
  }
  FASA_DEVICE int64_t group_of(int64_t place) const {
    return static_cast<int64_t>(static_cast<uint64_t>(place / kUnit) * group_reciprocal >> 32);
  }
  FASA_DEVICE bool has_offsets() const { return weights.format.offset != OffsetKind::kNone; }

  // value(code) of each of an output's places; `table`: the format's, or null.
  FASA_DEVICE void values(const PackedLine<kBits>& line, int output, const float* table,
                          float (&out)[kPlaces]) const {
    // As bytes: even has places 0, 4, 1, 5, odd 2, 6, 3, 7.
    const auto in_block = static_cast<int>(line.place / kPlaces % kBlockLines);
    uint32_t low = line.low.words[output];
    if constexpr (kBits < 4) low = low >> in_block % 2 * 2 & 0x33333333u;
    uint32_t even = low & 0x0f0f0f0fu;
    uint32_t odd = low >> 4 & 0x0f0f0f0fu;
    if constexpr (kBits == 8) {
      const uint32_t high = line.high[0].words[output];
      even |= (high & 0x0f0f0f0fu) << 4;
      odd |= high & 0xf0f0f0f0u;
    } else {
      FASA_UNROLL
      for (int i = 0; i < PackedLine<kBits>::kHigh; ++i) {
        const uint32_t plane = line.high[i].words[output] >> in_block;
        even |= (plane & 0x01010101u) << (PackedLine<kBits>::kLineBits + i);
        odd |= (plane >> 4 & 0x01010101u) << (PackedLine<kBits>::kLineBits + i);
      }
    }
    FASA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int place = i / 2 + i % 2 * 4;
      out[place] = value(even, i, table);
      out[place + 2] = value(odd, i, table);
    }
  }

 private:
  FASA_DEVICE static simt::Word16 word_at(const std::byte* at) {
    return simt::load_once(reinterpret_cast<const simt::Word16*>(at));
  }
  // One branch for all outputs.
  template <int kCount>
  FASA_DEVICE void load_scales(const PackedScales<kCount>& stored, float (&out)[kCount]) const {
    switch (weights.format.scale) {
      case ScaleKind::kF32:
        return each(out, [&](int i) { return simt::float_of(stored.scales.words[i]); });
      case ScaleKind::kF16:
        return each(out, [&](int i) { return f16_of(stored.scales, i); });
      case ScaleKind::kBF16:
        return each(out, [&](int i) { return simt::float_of(half_of(stored.scales, i) << 16); });
      case ScaleKind::kSuper:
        return each(out, [&](int i) {
          const auto code = static_cast<int8_t>(byte_of(stored.scales, i));
          return f16_of(stored.super_scales, i) * static_cast<float>(code);
        });
      case ScaleKind::kSuperNibble:
        return each(out, [&](int i) {
          return f16_of(stored.super_scales, i) *
                 static_cast<float>(byte_of(stored.scales, i) & 15);
        });
    }
  }
  template <int kCount>
  FASA_DEVICE void load_offsets(const PackedScales<kCount>& stored, const float (&scales)[kCount],
                                float (&out)[kCount]) const {
    switch (weights.format.offset) {
      case OffsetKind::kNone:
        return each(out, [](int) { return 0.0f; });
      case OffsetKind::kZero:
        return each(out, [&](int i) {
          return -scales[i] * static_cast<float>(static_cast<int8_t>(byte_of(stored.offsets, i)));
        });
      case OffsetKind::kZero16:
        return each(out, [&](int i) {
          return -scales[i] * static_cast<float>(static_cast<int16_t>(half_of(stored.offsets, i)));
        });
      case OffsetKind::kF16:
        return each(out, [&](int i) { return f16_of(stored.offsets, i); });
      case OffsetKind::kSuper:
        return each(out, [&](int i) {
          return -f16_of(stored.super_offsets, i) * static_cast<float>(byte_of(stored.offsets, i));
        });
      case OffsetKind::kSuperNibble:
        return each(out, [&](int i) {
          return -f16_of(stored.super_offsets, i) *
                 static_cast<float>(byte_of(stored.scales, i) >> 4);
        });
    }
  }
  template <int kCount, typename Number>
  FASA_DEVICE static void each(float (&out)[kCount], const Number& number) {
    FASA_UNROLL
    for (int i = 0; i < kCount; ++i) out[i] = number(i);
  }
  FASA_DEVICE float value(uint32_t codes, int byte, const float* table) const {
    if (table != nullptr) return table[codes >> 8 * byte & 0xffu];
    if constexpr (kBits == 8) {
      // As f32_from_e4m3().
      const uint32_t code = codes >> 8 * byte;
      const uint32_t bits = (code & 0x7fu) << 20 | (code & 0x80u) << 24;
      if (weights.format.is_float) return simt::float_of(bits) * 0x1p120f;
    }
    constexpr float k2To23 = 8388608.0f;
    return simt::byte_above_2_23(codes, byte) -
           (k2To23 + static_cast<float>(weights.format.centre));
  }
};

}  // namespace fasa::cuda
