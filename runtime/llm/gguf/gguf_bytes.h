// Numbers in the bytes of GGUF files: little endian, unaligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace fasa {

// The element `index` of an array; the caller has checked the length.
template <typename T>
T load_gguf(std::span<const std::byte> bytes, uint64_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace fasa
