#include "tools/terminal/word_wrap.h"

#include <utility>

#include "runtime/base/utf8.h"

namespace fasa {

std::string WordWrap::take_word() {
  const auto length = static_cast<int>(count_characters(word_));
  const auto before = static_cast<int>(std::ssize(blanks_));
  std::string out = std::exchange(blanks_, "");
  if (has_words_ && at_ + before + length > columns_) {
    out = "\n" + std::string(static_cast<size_t>(indent_), ' ');
    at_ = indent_;
  } else {
    at_ += before;
  }
  at_ += length;
  has_words_ = true;
  return out + std::exchange(word_, "");
}

void WordWrap::begin_line() {
  blanks_.clear();
  at_ = 0;
  has_words_ = false;
}

std::string WordWrap::add(std::string_view text) {
  if (columns_ == 0) return std::string(text);
  std::string out;
  for (const char c : text) {
    if (c != ' ' && c != '\n') {
      word_ += c;
      continue;
    }
    if (!word_.empty()) out += take_word();
    if (c == ' ') {
      blanks_ += c;
      continue;
    }
    begin_line();
    out += c;
  }
  return out;
}

std::string WordWrap::finish() {
  std::string out = word_.empty() ? "" : take_word();
  begin_line();
  return out;
}

}  // namespace fasa
