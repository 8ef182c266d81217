// Bytes that no UTF-8 text has. Within coded texts each stands for a mark that is one token.
#pragma once

#include <string_view>

namespace fasa::text {

inline constexpr std::string_view kNeverUtf8 =
    "\xc0\xc1\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff";

}  // namespace fasa::text
