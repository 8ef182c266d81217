// Characters that Unicode 15 and 16 added, for a library of regular expressions that knows fewer.
#pragma once

#include <string>
#include <string_view>

namespace fasa::text {

// The text with each such character replaced by an old one of the same general category, script
// class and number of bytes, so that places in both are the same; "" where it has none of them.
std::string with_older_characters(std::string_view text);

}  // namespace fasa::text
