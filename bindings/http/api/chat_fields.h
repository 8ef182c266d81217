// Fields of chats in several APIs: "messages" of chat completions and of Ollama's API, and how much
// a model is to think, by any API's fields.
#pragma once

#include "bindings/http/api/request_fields.h"

namespace fasa::serve {

// As templates expect them. Throws ApiError.
Json read_chat_messages(const RequestFields& fields);

// The messages' field: a list of at most so many. Throws ApiError.
const Json& require_messages(const RequestFields& fields);

// An effort such as "low" or "none", or whether to think at all, as the variables of chat
// templates; other values are left out. Variables that the context has stay as they are.
void set_thinking(Json& context, const Json& effort);
// chat_template_kwargs: variables by name. They win over others.
void set_template_variables(Json& context, const RequestFields& fields);

}  // namespace fasa::serve
