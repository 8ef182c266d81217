#include "runtime/text/answer/mark_search.h"

#include <algorithm>
#include <utility>

namespace fasa::text {
namespace {

constexpr std::string_view kBlanks = " \n\r\t";

}  // namespace

bool is_blank(char byte) { return kBlanks.find(byte) != std::string_view::npos; }

size_t leading_blanks(std::string_view text) {
  return std::min(text.find_first_not_of(kBlanks), text.size());
}

size_t without_trailing_blanks(std::string_view text) {
  const size_t last = text.find_last_not_of(kBlanks);
  return last == std::string_view::npos ? 0 : last + 1;
}

std::vector<std::string> words_of(std::string_view mark) {
  std::vector<std::string> words;
  for (mark.remove_prefix(leading_blanks(mark)); !mark.empty();
       mark.remove_prefix(leading_blanks(mark))) {
    words.emplace_back(mark.substr(0, mark.find_first_of(kBlanks)));
    mark.remove_prefix(words.back().size());
  }
  return words;
}

MarkMatch match_mark(std::string_view text, std::string_view mark) {
  mark = mark.substr(0, without_trailing_blanks(mark));
  size_t at = 0;
  bool blanks = true;
  for (const char byte : mark) {
    if (is_blank(byte)) {
      blanks = true;
      continue;
    }
    if (std::exchange(blanks, false)) at += leading_blanks(text.substr(at));
    if (at == text.size()) return {MarkMatch::Kind::kOpen, at};
    if (text[at] != byte) return {};
    ++at;
  }
  return {MarkMatch::Kind::kYes, at};
}

FoundMark find_mark(std::string_view text, std::span<const std::string> marks, size_t begin) {
  FoundMark found;
  for (size_t i = 0; i < marks.size(); ++i) {
    if (marks[i].empty()) continue;
    const size_t at = text.find(marks[i], begin);
    const bool longer =
        at == found.at && found.found() && marks[i].size() > marks[found.which].size();
    if (at < found.at || longer) found = {at, i};
  }
  return found;
}

size_t possible_mark(std::string_view text, std::span<const std::string> marks) {
  size_t longest = 0;
  for (const std::string& mark : marks) {
    if (mark.empty()) continue;
    for (size_t size = std::min(mark.size() - 1, text.size()); size > longest; --size) {
      if (text.ends_with(std::string_view(mark).substr(0, size))) longest = size;
    }
  }
  return longest;
}

}  // namespace fasa::text
