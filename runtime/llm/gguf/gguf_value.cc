#include "runtime/llm/gguf/gguf_value.h"

#include <fmt/format.h>

#include <string_view>

#include "runtime/base/utf8.h"
#include "runtime/llm/gguf/gguf_bytes.h"

namespace fasa {
uint64_t gguf_element_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

bool GgufValue::is_integer() const {
  return gguf_element_bytes(type) > 0 && type != GgufType::kF32 && type != GgufType::kF64 &&
         type != GgufType::kBool;
}

// Numbers of 2^63 and above become negative, so they fail every bounds check.
int64_t GgufValue::integer_at(uint64_t index) const {
  switch (type) {
    case GgufType::kU8:
      return load_gguf<uint8_t>(bytes, index);
    case GgufType::kI8:
      return load_gguf<int8_t>(bytes, index);
    case GgufType::kU16:
      return load_gguf<uint16_t>(bytes, index);
    case GgufType::kI16:
      return load_gguf<int16_t>(bytes, index);
    case GgufType::kU32:
      return load_gguf<uint32_t>(bytes, index);
    case GgufType::kI32:
      return load_gguf<int32_t>(bytes, index);
    default:
      return load_gguf<int64_t>(bytes, index);
  }
}

double GgufValue::number_at(uint64_t index) const {
  if (type == GgufType::kF32) {
    return static_cast<double>(load_gguf<float>(bytes, index));
  }
  if (type == GgufType::kF64) return load_gguf<double>(bytes, index);
  return static_cast<double>(integer_at(index));
}

std::string GgufValue::shown() const {
  constexpr size_t kMaxBytes = 100;
  if (is_array) return "";
  if (type == GgufType::kBool) return bytes[0] == std::byte{0} ? "false" : "true";
  if (type != GgufType::kString) return fmt::format("{:g}", number_at());
  const auto letters = bytes.subspan(sizeof(uint64_t));
  const std::string_view whole(reinterpret_cast<const char*>(letters.data()), letters.size());
  const std::string cut = valid_utf8(cut_text(whole, kMaxBytes));
  return fmt::format("\"{}{}\"", cut, whole.size() > kMaxBytes ? "..." : "");
}

}  // namespace fasa
