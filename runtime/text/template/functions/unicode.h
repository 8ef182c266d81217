// Characters of UTF-8 text, with Python's definitions of space and case.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/utf8.h"
#include "runtime/text/template/functions/marked_text.h"

namespace fasa::jinja {

// All texts below must be valid UTF-8.
struct Character {
  char32_t code = 0;
  size_t size = 0;  // bytes
};
Character character_at(std::string_view text, size_t offset);

// Offset of the character `index`, or the text's size if there are fewer.
size_t offset_of_character(std::string_view text, size_t index);

bool is_space(char32_t character);      // str.isspace
bool is_printable(char32_t character);  // str.isprintable: repr() does not escape it

// The range [begin, end) that str.strip keeps. `characters`: those to strip; null: white space.
struct Sides {
  bool left = true;
  bool right = true;
};
std::pair<size_t, size_t> strip(std::string_view text, const std::string_view* characters,
                                Sides sides);
// Begin and end of each line, split as by str.splitlines, without line ends.
std::vector<std::pair<size_t, size_t>> split_lines(std::string_view text);

MarkedText lower(const MarkedText& text);
MarkedText upper(const MarkedText& text);
MarkedText title(const MarkedText& text);
MarkedText capitalize(const MarkedText& text);

}  // namespace fasa::jinja
