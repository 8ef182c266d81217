// A metadata value of a GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace fasa {

// Metadata types, with the format's numbers.
enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// A value in the file; for an array, its elements in sequence.
struct GgufValue {
  GgufType type = GgufType::kU8;  // for an array, of its elements
  bool is_array = false;
  uint64_t count = 1;
  std::span<const std::byte> bytes;

  bool is_integer() const;
  // Elements of numeric types; of a single value, the first.
  int64_t integer_at(uint64_t index = 0) const;
  double number_at(uint64_t index = 0) const;
  // For messages; "" for an array.
  std::string shown() const;
};

// Bytes of an element; 0: of no fixed length.
uint64_t gguf_element_bytes(GgufType type);

}  // namespace fasa
