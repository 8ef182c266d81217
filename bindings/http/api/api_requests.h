// Requests of APIs other than OpenAI's completions, read as those. All readers throw ApiError.
#pragma once

#include <functional>
#include <string>

#include "bindings/http/api/openai_request.h"
#include "bindings/http/api/request_fields.h"
#include "bindings/http/stored_responses.h"

namespace fasa::serve {

// Anthropic's POST /v1/messages, as a chat. `counted`: for /v1/messages/count_tokens, which needs
// no max_tokens.
ChatRequest read_messages_request(const Json& body, bool counted);

// POST /completion of llama.cpp's server.
CompletionRequest read_llama_request(const Json& body);

// "load" or "unload" of a request of Ollama's that has nothing to answer; "" of others.
std::string ollama_load_reason(const Json& body, bool chat);
// POST /api/chat.
ChatRequest read_ollama_chat(const Json& body);
// POST /api/generate: by a chat template, unless "raw" asks for the prompt as it is.
bool is_raw_prompt(const Json& body);
ChatRequest read_ollama_prompt(const Json& body);
CompletionRequest read_ollama_raw_prompt(const Json& body);

// POST /v1/responses.
struct ResponsesRequest {
  ChatRequest chat;
  Json echo;            // request fields that the response repeats
  StoredTurns earlier;  // that it continues
  Json input;           // its own items
  bool stored = false;
};

// `stored`: the client's turns until a response; null: nothing is stored.
ResponsesRequest read_responses_request(
    const Json& body, const std::function<StoredTurns(const std::string& id)>& stored);

}  // namespace fasa::serve
