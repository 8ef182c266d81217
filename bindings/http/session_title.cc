#include "bindings/http/session_title.h"

#include <algorithm>

namespace fasa::serve {

// The first line that is not blank, cut to kMost bytes between characters.
std::string title_of(std::string_view text) {
  constexpr size_t kMost = 80;
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  text = text.substr(0, text.find_first_of("\r\n"));
  if (text.size() <= kMost) return std::string(text);
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end));
}

std::string chat_title(const Json& messages) {
  for (const Json& message : messages) {
    if (message.value("role", "") == "user") return title_of(message.value("content", ""));
  }
  return "";
}

}  // namespace fasa::serve
