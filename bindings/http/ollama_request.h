// Requests of Ollama's API, as OpenAI's.
#pragma once

#include "bindings/http/openai_request.h"
#include "bindings/http/request_fields.h"

namespace fasa::serve {

// POST /api/chat. Throws ApiError.
ChatRequest read_ollama_chat(const Json& body);
// POST /api/generate: by a chat template, unless "raw" asks for the prompt as it is.
bool is_raw_prompt(const Json& body);
ChatRequest read_ollama_prompt(const Json& body);
CompletionRequest read_ollama_raw_prompt(const Json& body);

}  // namespace fasa::serve
