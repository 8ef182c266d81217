// Requests of POST /v1/responses: parsed and checked.
#pragma once

#include <functional>
#include <string>

#include "bindings/http/openai_request.h"
#include "bindings/http/request_fields.h"
#include "bindings/http/stored_responses.h"

namespace fasa::serve {

struct ResponsesRequest {
  ChatRequest chat;
  Json echo;            // request fields that the response repeats
  StoredTurns earlier;  // that it continues
  Json input;           // its own items
  bool stored = false;
};

// `stored`: the client's turns until a response; null: nothing is stored. Throws ApiError.
ResponsesRequest read_responses_request(
    const Json& body, const std::function<StoredTurns(const std::string& id)>& stored);

}  // namespace fasa::serve
