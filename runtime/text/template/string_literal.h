// Escapes in a template's text literals.
#pragma once

#include <string>
#include <string_view>

namespace fasa::jinja {

// Decodes a literal (without its quotes) by Python's rules. Returns null, or an error text.
const char* unescape(std::string_view literal, std::string* text);

}  // namespace fasa::jinja
