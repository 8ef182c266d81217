// The text of a message's content in any API: a string, a list of parts, or nothing.
#pragma once

#include <optional>
#include <string>

#include "bindings/http/api/request_fields.h"

namespace fasa::serve {

// What happens to parts that are no text, such as images.
enum class OtherParts {
  kRefused,  // in the newest message of the user: ApiError
  kNoted,    // in the history: "[image omitted]", so that the conversation can go on
};

// `path` names the content in errors. Parts of thinking are left out.
std::string content_text(const Json& content, const std::string& path, OtherParts others);
// The parts of thinking, as Mistral's messages have them.
std::string thinking_text(const Json& content);

// The user's message that a request asks to answer: the last of the list, but for messages of the
// system behind it. Nothing if the list ends otherwise.
std::optional<size_t> newest_user_message(const Json& messages);

// Logs once that items of this type are left out of prompts.
void log_skipped(const std::string& type);

}  // namespace fasa::serve
