// Escapes in a template's text literals.
#pragma once

#include <string>
#include <string_view>

namespace fasa::jinja {

// What a literal between its quotes stands for, by Python's rules. Returns null, or what is wrong.
const char* unescape(std::string_view literal, std::string* text);

}  // namespace fasa::jinja
