// "messages" of chat completions and of Ollama's API.
#pragma once

#include "bindings/http/request_fields.h"

namespace fasa::serve {

// As templates expect them. Throws ApiError.
Json read_chat_messages(const RequestFields& fields);

// The messages' field: a list of at most so many. Throws ApiError.
const Json& require_messages(const RequestFields& fields);

}  // namespace fasa::serve
