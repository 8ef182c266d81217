// A tensor of any dtype as stored in a safetensors file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace fasa {

// Little endian, unaligned; valid while the file is mapped.
struct RawTensor {
  std::string_view dtype;  // as written: I32, U8, F16, ...
  std::span<const int64_t> shape;
  const std::byte* data = nullptr;

  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t length : shape) count *= length;
    return count;
  }
  uint32_t word(int64_t index) const {
    uint32_t value = 0;
    std::memcpy(&value, data + index * 4, sizeof(value));
    return value;
  }
  uint8_t byte(int64_t index) const { return static_cast<uint8_t>(data[index]); }
};

}  // namespace fasa
