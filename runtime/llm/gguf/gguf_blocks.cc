#include "runtime/llm/gguf/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/base/dtype.h"
#include "runtime/llm/gguf/gguf_codebooks.h"
#include "runtime/llm/weights/packed_tensor.h"

namespace fasa {
namespace {

float f16_at(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return f32_from_f16(bits);
}
uint32_t word_at(const std::byte* at) {
  uint32_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}
uint8_t byte_at(const std::byte* at) { return static_cast<uint8_t>(*at); }
int nibble_at(const std::byte* at, int index) {
  return byte_at(at + index / 2) >> (4 * (index % 2)) & 15;
}

// Blocks of 32: low nibbles hold the first half. `high`: the fifth bits, or null.
void read_nibbles(const std::byte* nibbles, const std::byte* high, uint8_t* codes) {
  const uint32_t bits = high == nullptr ? 0 : word_at(high);
  for (int i = 0; i < 16; ++i) {
    const uint8_t pair = byte_at(nibbles + i);
    codes[i] = static_cast<uint8_t>((pair & 15) | (bits >> i & 1) << 4);
    codes[i + 16] = static_cast<uint8_t>(pair >> 4 | (bits >> (i + 16) & 1) << 4);
  }
}

void read_q4_0(const std::byte* at, const BlockTarget& to) {
  *to.scales = f16_at(at);
  read_nibbles(at + 2, nullptr, to.codes);
}

void read_q4_1(const std::byte* at, const BlockTarget& to) {
  *to.scales = f16_at(at);
  *to.offsets = f16_at(at + 2);
  read_nibbles(at + 4, nullptr, to.codes);
}

void read_q5_0(const std::byte* at, const BlockTarget& to) {
  *to.scales = f16_at(at);
  read_nibbles(at + 6, at + 2, to.codes);
}

void read_q5_1(const std::byte* at, const BlockTarget& to) {
  *to.scales = f16_at(at);
  *to.offsets = f16_at(at + 2);
  read_nibbles(at + 8, at + 4, to.codes);
}

void read_q8_0(const std::byte* at, const BlockTarget& to) {
  *to.scales = f16_at(at);
  for (int i = 0; i < 32; ++i) to.codes[i] = byte_at(at + 2 + i) ^ 0x80;
}

void read_mxfp4(const std::byte* at, const BlockTarget& to) {
  *to.scales = std::ldexp(1.0f, byte_at(at) - kMxfp4Bias);
  read_nibbles(at + 1, nullptr, to.codes);
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
void read_super_nibbles(const std::byte* at, const std::byte* nibbles, const std::byte* high,
                        const BlockTarget& to) {
  *to.super_scale = f16_at(at);
  *to.super_offset = f16_at(at + 2);
  read_six_bits(at + 4, to.scales, to.offsets);
  for (int group = 0; group < 8; ++group) {
    for (int i = 0; i < 32; ++i) {
      const uint8_t pair = byte_at(nibbles + group / 2 * 32 + i);
      int code = group % 2 == 0 ? pair & 15 : pair >> 4;
      if (high != nullptr) code |= (byte_at(high + i) >> group & 1) << 4;
      to.codes[group * 32 + i] = static_cast<uint8_t>(code);
    }
  }
}
void read_q4_k(const std::byte* at, const BlockTarget& to) {
  read_super_nibbles(at, at + 16, nullptr, to);
}
void read_q5_k(const std::byte* at, const BlockTarget& to) {
  read_super_nibbles(at, at + 48, at + 16, to);
}

// Per 128 elements 64 bytes of low nibbles and 32 of two bits.
void read_q6_k(const std::byte* at, const BlockTarget& to) {
  const std::byte* const high = at + 128;
  for (int i = 0; i < 16; ++i) {
    to.scales[i] = static_cast<float>(static_cast<int8_t>(at[192 + i]));
  }
  *to.super_scale = f16_at(at + 208);
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 128; ++i) {
      const uint8_t pair = byte_at(at + half * 64 + i % 64);
      const uint8_t bits = byte_at(high + half * 32 + i % 32);
      const int code = (i < 64 ? pair & 15 : pair >> 4) | (bits >> (i / 32 * 2) & 3) << 4;
      to.codes[half * 128 + i] = static_cast<uint8_t>(code);
    }
  }
}

// Q2_K, Q3_K: per 128 elements 32 bytes, of which each two bits belong to the next 32.
int two_bits(const std::byte* at, int i) {
  return byte_at(at + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
}

void read_q2_k(const std::byte* at, const BlockTarget& to) {
  for (int i = 0; i < 16; ++i) {
    to.scales[i] = static_cast<float>(nibble_at(at, 2 * i));
    to.offsets[i] = static_cast<float>(nibble_at(at, 2 * i + 1));
  }
  for (int i = 0; i < 256; ++i) to.codes[i] = static_cast<uint8_t>(two_bits(at + 16, i));
  *to.super_scale = f16_at(at + 80);
  *to.super_offset = f16_at(at + 82);
}

// The third bits: bit i of 32 bytes belongs to the i-th 32. Scales: eight bytes of low nibbles,
// first of groups 0 to 7, then four bytes of two bits.
void read_q3_k(const std::byte* at, const BlockTarget& to) {
  const std::byte* const scales = at + 96;
  for (int i = 0; i < 256; ++i) {
    const int third = byte_at(at + i % 32) >> (i / 32) & 1;
    to.codes[i] = static_cast<uint8_t>(two_bits(at + 32, i) | third << 2);
  }
  for (int i = 0; i < 16; ++i) {
    const int low = byte_at(scales + i % 8) >> (i / 8 * 4) & 15;
    const int high = byte_at(scales + 8 + i % 4) >> (i / 4 * 2) & 3;
    to.scales[i] = static_cast<float>((low | high << 4) - 32);
  }
  *to.super_scale = f16_at(at + 108);
}

// Scales of six bits: nibbles, and two bits each of 16.
void read_iq4_xs(const std::byte* at, const BlockTarget& to) {
  *to.super_scale = f16_at(at);
  const int high = byte_at(at + 2) | byte_at(at + 3) << 8;
  for (int group = 0; group < 8; ++group) {
    const int scale = nibble_at(at + 4, group) | (high >> (2 * group) & 3) << 4;
    to.scales[group] = static_cast<float>(scale - 32);
    read_nibbles(at + 8 + group * 16, nullptr, to.codes + group * 32);
  }
}

// Four codes of a codebook's entry; `signs`: a bit each.
void read_levels(uint32_t entry, uint32_t signs, uint8_t* codes) {
  for (int i = 0; i < 4; ++i) {
    codes[i] = static_cast<uint8_t>((entry >> (3 * i) & 7) | (signs >> i & 1) << 3);
  }
}

// 64 entries' numbers, then for each 32 elements a word: four times seven signs of eight elements,
// the eighth of which makes their number even, and a scale of 4 bits.
void read_iq3_xxs(const std::byte* at, const BlockTarget& to) {
  static const std::vector<uint16_t> entries = entries_of(kIq3XxsLevels);
  *to.super_scale = f16_at(at);
  for (int group = 0; group < 8; ++group) {
    const uint32_t word = word_at(at + 66 + group * 4);
    to.scales[group] = static_cast<float>(2 * (word >> 28) + 1);
    for (int i = 0; i < 8; ++i) {
      const uint32_t seven = word >> (i / 2 * 7) & 127;
      const uint32_t signs = seven | static_cast<uint32_t>(std::popcount(seven) & 1) << 7;
      const uint16_t entry = entries[byte_at(at + 2 + group * 8 + i)];
      read_levels(entry, signs >> (i % 2 * 4), to.codes + group * 32 + i * 4);
    }
  }
}

// 64 entries' numbers of nine bits, the ninth apart; a sign each element; scales of 4 bits.
void read_iq3_s(const std::byte* at, const BlockTarget& to) {
  static const std::vector<uint16_t> entries = entries_of(kIq3SLevels);
  *to.super_scale = f16_at(at);
  for (int group = 0; group < 8; ++group) {
    to.scales[group] = static_cast<float>(2 * nibble_at(at + 106, group) + 1);
    for (int i = 0; i < 8; ++i) {
      const int ninth = byte_at(at + 66 + group) >> i & 1;
      const auto entry = static_cast<size_t>(byte_at(at + 2 + group * 8 + i) | ninth << 8);
      const auto signs = static_cast<uint32_t>(nibble_at(at + 74 + group * 4, i));
      read_levels(entries[entry], signs, to.codes + group * 32 + i * 4);
    }
  }
}

constexpr int kBlock = 32;

PackedFormat plain(int bits, int centre) {
  return {.bits = bits, .group = kBlock, .centre = centre};
}
PackedFormat with_least(int bits) {
  return {.bits = bits, .group = kBlock, .offset = OffsetKind::kF16};
}
PackedFormat super(int bits) {
  return {.bits = bits, .group = kBlock, .scale = ScaleKind::kSuper, .offset = OffsetKind::kSuper};
}
PackedFormat of_sixteen(int bits, int centre) {
  return {.bits = bits, .group = 16, .scale = ScaleKind::kSuper, .centre = centre};
}
PackedFormat with_table(ScaleKind scale, const std::array<float, 16>& values) {
  return {.group = kBlock, .scale = scale, .has_table = true, .table = values};
}
PackedFormat q2_k() {
  return {
      .bits = 2, .group = 16, .scale = ScaleKind::kSuperNibble, .offset = OffsetKind::kSuperNibble};
}

}  // namespace

BlockLayout block_layout(GgmlType type) {
  switch (type) {
    case GgmlType::kQ40:
      return {plain(4, 8), read_q4_0};
    case GgmlType::kQ50:
      return {plain(5, 16), read_q5_0};
    case GgmlType::kQ80:
      return {plain(8, 128), read_q8_0};
    case GgmlType::kQ41:
      return {with_least(4), read_q4_1};
    case GgmlType::kQ51:
      return {with_least(5), read_q5_1};
    case GgmlType::kQ2K:
      return {q2_k(), read_q2_k};
    case GgmlType::kQ3K:
      return {of_sixteen(3, 4), read_q3_k};
    case GgmlType::kQ4K:
      return {super(4), read_q4_k};
    case GgmlType::kQ5K:
      return {super(5), read_q5_k};
    case GgmlType::kQ6K:
      return {of_sixteen(6, 32), read_q6_k};
    case GgmlType::kIq4Nl:
      return {with_table(ScaleKind::kF16, kIq4Values), read_q4_0};
    case GgmlType::kIq4Xs:
      return {with_table(ScaleKind::kSuper, kIq4Values), read_iq4_xs};
    case GgmlType::kIq3S:
      return {with_table(ScaleKind::kSuper, kIq3SValues), read_iq3_s};
    case GgmlType::kIq3Xxs:
      return {with_table(ScaleKind::kSuper, kIq3XxsValues), read_iq3_xxs};
    case GgmlType::kMxfp4:
      return {mxfp4_format(), read_mxfp4};
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16:
      break;
  }
  return {};
}

}  // namespace fasa
