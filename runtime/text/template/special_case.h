// Characters whose upper or title case is more than one character.
#pragma once

#include <string_view>

namespace fasa::jinja {

struct SpecialCase {
  char32_t character;
  std::u32string_view upper;
  std::u32string_view title;
};

// Null for the other characters, whose case is one character each.
const SpecialCase* find_special_case(char32_t character);

}  // namespace fasa::jinja
