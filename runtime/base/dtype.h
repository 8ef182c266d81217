// Element types of tensors and rows, and the scalar conversions between them.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fasa {

enum class DType : uint8_t { kF32, kF16, kBF16 };

constexpr int dtype_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
std::string_view dtype_name(DType dtype);  // "f32", "f16", "bf16"
std::optional<DType> parse_dtype(std::string_view name);

// Round to nearest even; NaN stays NaN (quiet), infinities stay.
constexpr uint16_t bf16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
constexpr float f32_from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
uint16_t f16_from_f32(float value);  // round to nearest even, overflow to infinity
float f32_from_f16(uint16_t bits);

// One element at `data[index]`.
float load_element(DType dtype, const void* data, int64_t index);
void store_element(DType dtype, void* data, int64_t index, float value);

}  // namespace fasa
