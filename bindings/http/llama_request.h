// Requests of llama.cpp's server: POST /completion.
#pragma once

#include "bindings/http/openai_request.h"
#include "bindings/http/request_fields.h"

namespace fasa::serve {

// Throws ApiError.
CompletionRequest read_llama_request(const Json& body);

}  // namespace fasa::serve
