// Marks within a text that comes in pieces.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::text {

struct MarkMatch {
  enum class Kind { kNo, kOpen, kYes };  // kOpen: the text ends within what may be the mark
  Kind kind = Kind::kNo;
  size_t size = 0;  // bytes of the text

  bool yes() const { return kind == Kind::kYes; }
  // Whether more text is needed; `over`: there is none.
  bool open(bool over) const { return kind == Kind::kOpen && !over; }
};

// Whether the text begins with the mark. Where the mark begins or has blanks the text may have
// any; blanks at the mark's end are not taken.
MarkMatch match_mark(std::string_view text, std::string_view mark);

struct FoundMark {
  size_t at = std::string_view::npos;
  size_t which = 0;

  bool found() const { return at != std::string_view::npos; }
};

// The first of the marks in the text from `begin` on, the longest if several begin there.
FoundMark find_mark(std::string_view text, std::span<const std::string> marks, size_t begin = 0);
// The longest end of the text that may be the beginning of a mark, in bytes.
size_t possible_mark(std::string_view text, std::span<const std::string> marks);

// The parts of a mark between its blanks.
std::vector<std::string> words_of(std::string_view mark);

bool is_blank(char byte);
// Bytes of blanks at the beginning.
size_t leading_blanks(std::string_view text);
// Bytes without the blanks at the end.
size_t without_trailing_blanks(std::string_view text);

}  // namespace fasa::text
