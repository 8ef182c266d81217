// Packed weights for tests of matrix products: every kind of format, with scales that each kind
// represents exactly.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/simt.h"
#include "kernels/packed_format.h"
#include "kernels/packed_params.h"

namespace fasa::packed_case {

struct NamedFormat {
  const char* name;
  PackedFormat format;
};

inline PackedFormat table_format(ScaleKind scale, std::array<float, 16> table, int group) {
  return {.bits = 4, .group = group, .scale = scale, .has_table = true, .table = table};
}

inline const std::vector<NamedFormat>& formats() {
  constexpr std::array<float, 16> kFp4 = {0,     .5f,  1,  1.5f,  2,  3,  4,  6,
                                          -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};
  constexpr std::array<float, 16> kUneven = {-1,   -.7f, -.53f, -.39f, -.28f, -.18f, -.09f, 0,
                                             .08f, .16f, .25f,  .34f,  .44f,  .56f,  .72f,  1};
  static const std::vector<NamedFormat> all = {
      {"zeros", {4, 64, ScaleKind::kF16, OffsetKind::kZero, false, 8}},
      {"symmetric", {4, 128, ScaleKind::kBF16, OffsetKind::kNone, false, 8}},
      {"uneven_table", table_format(ScaleKind::kF32, kUneven, 64)},
      {"fp4_table", table_format(ScaleKind::kBF16, kFp4, 32)},
      {"least", {4, 32, ScaleKind::kF16, OffsetKind::kF16, false, 0}},
      {"five_bits", {5, 32, ScaleKind::kF16, OffsetKind::kNone, false, 16}},
      {"super_five", {5, 32, ScaleKind::kSuper, OffsetKind::kSuper, false, 0}},
      {"super_four", {4, 32, ScaleKind::kSuper, OffsetKind::kSuper, false, 0}},
      {"super_six", {6, 16, ScaleKind::kSuper, OffsetKind::kNone, false, 32}},
      {"eight_bits", {8, 32, ScaleKind::kF16, OffsetKind::kNone, false, 128}},
      {"eight_with_zeros", {8, 4096, ScaleKind::kF32, OffsetKind::kZero16, false, 128}},
      {"super_table", {.group = 32, .scale = ScaleKind::kSuper, .has_table = true, .table = kFp4}},
      {"super_three", {3, 16, ScaleKind::kSuper, OffsetKind::kNone, false, 4}},
      {"super_two", {2, 16, ScaleKind::kSuperNibble, OffsetKind::kSuperNibble, false, 0}},
      {"two_by_rows", {2, 64, ScaleKind::kF16, OffsetKind::kZero, false, 1}},
      {"e4m3", {.bits = 8, .group = 128, .scale = ScaleKind::kF32, .is_float = true}},
  };
  return all;
}

// A random scale that this kind represents exactly.
inline float random_scale(ScaleKind kind, std::mt19937& random) {
  if (kind == ScaleKind::kSuperNibble) return static_cast<float>(random() % 16);
  if (kind == ScaleKind::kSuper) return static_cast<float>(static_cast<int>(random() % 63) + 1);
  return std::ldexp(static_cast<float>(64 + random() % 64), -14);
}
inline float random_offset(OffsetKind kind, std::mt19937& random) {
  switch (kind) {
    case OffsetKind::kF16:
      return -static_cast<float>(random() % 64) / 2048;
    case OffsetKind::kSuper:
      return static_cast<float>(random() % 64);
    case OffsetKind::kSuperNibble:
      return static_cast<float>(random() % 16);
    default:
      return static_cast<float>(static_cast<int>(random() % 16) - 8);
  }
}

// Packed weights together with their unpacked values.
class Packed {
 public:
  Packed(const PackedFormat& format, int64_t outputs, int64_t inputs)
      : inputs_(inputs),
        places_((inputs + kPackedBlock - 1) / kPackedBlock * kPackedBlock),
        panel_(format, places_) {
    const int64_t panels = (outputs + kPackedColumns - 1) / kPackedColumns;
    memory_.resize(static_cast<size_t>(panels * panel_.bytes) + 64);
    std::mt19937 random(static_cast<unsigned>(outputs * 31 + inputs));
    for (int64_t output = 0; output < outputs; ++output) add_row(format, output, random);
  }

  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (64 - address % 64) % 64;
  }
  const PackedPanel& panel() const { return panel_; }
  float weight(int64_t output, int64_t input) const {
    return plain_[static_cast<size_t>(output * inputs_ + input)];
  }

 private:
  void add_row(const PackedFormat& format, int64_t output, std::mt19937& random) {
    std::vector<uint8_t> codes(static_cast<size_t>(places_));
    std::vector<float> scales(static_cast<size_t>(panel_.groups));
    std::vector<float> offsets(scales.size());
    std::vector<float> super_scales(static_cast<size_t>(panel_.supers));
    std::vector<float> super_offsets(super_scales.size());
    for (auto& code : codes) code = static_cast<uint8_t>(random() % (1u << format.bits));
    for (auto& scale : scales) scale = random_scale(format.scale, random);
    for (auto& offset : offsets) offset = random_offset(format.offset, random);
    for (auto& scale : super_scales) scale = static_cast<float>(1 + random() % 100) / 65536;
    for (auto& offset : super_offsets) offset = static_cast<float>(1 + random() % 100) / 65536;
    const PackedRow row{codes.data(), scales.data(), offsets.data(), super_scales.data(),
                        super_offsets.data()};
    std::byte* const panel = data() + output / kPackedColumns * panel_.bytes;
    const int64_t column = output % kPackedColumns;
    pack_row(format, panel_, row, column, panel);
    for (int64_t input = 0; input < inputs_; ++input) {
      const GroupNumbers numbers = group_numbers(format, row, input / format.group);
      const float value = format.value(codes[static_cast<size_t>(input)]);
      plain_.push_back(numbers.scale * value + numbers.offset);
      EXPECT_EQ(packed_code(format, panel_, panel, column, input),
                codes[static_cast<size_t>(input)]);
      const GroupNumbers packed =
          packed_numbers(format, panel_, panel, column, input / format.group);
      EXPECT_EQ(packed.scale, numbers.scale);
      EXPECT_EQ(packed.offset, numbers.offset);
    }
  }

  int64_t inputs_;
  int64_t places_;
  PackedPanel panel_;
  std::vector<std::byte> memory_;
  std::vector<float> plain_;
};

// Inputs in another order than their codes.
struct OrderedCase {
  static constexpr int64_t kInputs = 40, kOutputs = 3;
  PackedFormat format{4, 32, ScaleKind::kF16, OffsetKind::kZero, false, 8};
  PackedPanel panel{format, 64};
  std::vector<int32_t> order = std::vector<int32_t>(64, -1);
  std::vector<simt::Word16> memory =
      std::vector<simt::Word16>(static_cast<size_t>(panel.bytes) / 16);
  double plain[kOutputs][kInputs] = {};

  OrderedCase() {
    for (int32_t input = 0; input < kInputs; ++input) {
      order[static_cast<size_t>(input % 2 * 32 + input / 2)] = input;  // even ones, then odd ones
    }
    for (int64_t output = 0; output < kOutputs; ++output) {
      std::vector<uint8_t> codes(64);
      for (int64_t place = 0; place < 64; ++place) {
        const auto code = static_cast<uint8_t>((place * 7 + output) % 16);
        codes[static_cast<size_t>(place)] = code;
        const int32_t input = order[static_cast<size_t>(place)];
        if (input >= 0) plain[output][input] = (code - 8 - (place < 32 ? 1 : -2)) * 0.5;
      }
      const float scales[] = {0.5f, 0.5f};
      const float zeros[] = {1, -2};
      pack_row(format, panel, {codes.data(), scales, zeros, nullptr, nullptr}, output,
               reinterpret_cast<std::byte*>(memory.data()));
    }
  }
  PackedWeights weights() const {
    return {.format = format,
            .panel = panel,
            .inputs = kInputs,
            .order = order.data(),
            .panels = reinterpret_cast<const std::byte*>(memory.data())};
  }
};

}  // namespace fasa::packed_case
