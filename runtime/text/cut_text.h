// Shortens texts for messages.
#pragma once

#include <cstddef>
#include <string_view>

namespace fasa::text {

// The longest beginning of at most `max_bytes` that does not end within a character.
inline std::string_view cut_text(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace fasa::text
