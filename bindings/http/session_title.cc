#include "bindings/http/session_title.h"

#include <algorithm>

namespace fasa::serve {
namespace {

// Without blanks at both ends.
std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  return line.substr(0, line.find_last_not_of(kBlank) + 1);
}

// The number of backticks that open or close a block; 0: the line is no fence.
size_t fence_of(std::string_view line) {
  const size_t ticks = std::min(line.find_first_not_of('`'), line.size());
  return ticks >= 3 ? ticks : 0;
}

// The first line that is not blank and no attached text: those are "NAME:" and a fenced block. The
// first one of all if there is no other.
std::string_view first_line(std::string_view text) {
  std::string_view first, candidate;
  size_t fence = 0;  // of the block that `text` is in
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t ticks = fence_of(line);
    if (first.empty()) first = line;
    if (fence > 0) {
      if (ticks >= fence && ticks == line.size()) fence = 0;
    } else if (ticks > 0) {
      fence = ticks;
      candidate = {};  // it was the block's name
    } else if (!line.empty()) {
      if (!candidate.empty()) return candidate;
      if (line.back() != ':') return line;
      candidate = line;
    }
  }
  return candidate.empty() ? first : candidate;
}

}  // namespace

std::string title_of(std::string_view text) {
  constexpr size_t kMost = 80;
  text = first_line(text);
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
