// Compares names loosely: case, blanks, dashes and underscores are ignored.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace fasa {

inline std::string loose_name(std::string_view name) {
  std::string loose;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    loose += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return loose;
}

}  // namespace fasa
