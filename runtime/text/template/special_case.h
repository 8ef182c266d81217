// Characters whose upper or title case has several characters.
#pragma once

#include <string_view>

namespace fasa::jinja {

struct SpecialCase {
  char32_t character;
  std::u32string_view upper;
  std::u32string_view title;
};

// Null for characters whose case is a single character.
const SpecialCase* find_special_case(char32_t character);

}  // namespace fasa::jinja
