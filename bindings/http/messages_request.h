// Requests of Anthropic's POST /v1/messages, as a chat.
#pragma once

#include "bindings/http/openai_request.h"
#include "bindings/http/request_fields.h"

namespace fasa::serve {

// `counted`: for /v1/messages/count_tokens, which needs no max_tokens. Throws ApiError.
ChatRequest read_messages_request(const Json& body, bool counted);

}  // namespace fasa::serve
