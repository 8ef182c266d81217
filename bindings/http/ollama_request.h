// Requests of Ollama's API, as OpenAI's.
#pragma once

#include "bindings/http/openai_request.h"
#include "bindings/http/request_fields.h"

namespace fasa::serve {

// "load" or "unload" of a request that has nothing to answer; "" of others. Throws ApiError.
std::string ollama_load_reason(const Json& body, bool chat);
// POST /api/chat. Throws ApiError.
ChatRequest read_ollama_chat(const Json& body);
// POST /api/generate: by a chat template, unless "raw" asks for the prompt as it is.
bool is_raw_prompt(const Json& body);
ChatRequest read_ollama_prompt(const Json& body);
CompletionRequest read_ollama_raw_prompt(const Json& body);

}  // namespace fasa::serve
