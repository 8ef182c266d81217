// The title of a conversation: the beginning of what the user said first.
#pragma once

#include <string>
#include <string_view>

#include "bindings/http/api/request_fields.h"

namespace fasa::serve {

// The first line that is not blank and no attached text (fenced, or the name of a fenced text), cut
// to 80 bytes between characters.
std::string title_of(std::string_view text);
// The title of a chat's messages; "": the user said nothing.
std::string chat_title(const Json& messages);

}  // namespace fasa::serve
