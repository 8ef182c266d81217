// Characters added by Unicode 15 and 16, which an older regular-expression library does not know.
#pragma once

#include <string>
#include <string_view>

namespace fasa::text {

// Replaces each such character by an older one of the same general category, script class and
// number of bytes, so offsets stay the same; "" if the text has none.
std::string with_older_characters(std::string_view text);

}  // namespace fasa::text
