#include "runtime/text/answer/mark_codes.h"

#include <algorithm>
#include <utility>

#include "runtime/text/never_utf8.h"

namespace fasa::text {
MarkCodes::MarkCodes(const AnswerFormat& format, const Tokenizer& tokenizer) {
  for (std::string& mark : format.marks()) {
    const auto id = tokenizer.token_id(mark);
    if (!id || !tokenizer.is_added(*id) || marks_.size() == kNeverUtf8.size()) continue;
    marks_.push_back({std::move(mark), *id, kNeverUtf8[marks_.size()]});
  }
}

bool MarkCodes::is_code(char byte) { return kNeverUtf8.find(byte) != std::string_view::npos; }

std::optional<char> MarkCodes::code(int32_t id) const {
  const auto found =
      std::find_if(marks_.begin(), marks_.end(), [&](const Mark& mark) { return mark.id == id; });
  return found == marks_.end() ? std::nullopt : std::optional(found->code);
}

std::string MarkCodes::coded(std::string text) const {
  for (const Mark& mark : marks_) {
    for (size_t at = 0; (at = text.find(mark.text, at)) != std::string::npos; ++at) {
      text.replace(at, mark.text.size(), 1, mark.code);
    }
  }
  return text;
}

std::string MarkCodes::spelled(std::string_view text) const {
  std::string out;
  for (const char byte : text) {
    const auto found = std::find_if(marks_.begin(), marks_.end(),
                                    [&](const Mark& mark) { return mark.code == byte; });
    if (found == marks_.end()) {
      out += byte;
    } else {
      out += found->text;
    }
  }
  return out;
}

}  // namespace fasa::text
