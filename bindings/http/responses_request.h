// Requests of POST /v1/responses: parsed and checked. Nothing is stored, so each request carries
// the whole conversation.
#pragma once

#include "bindings/http/openai_request.h"
#include "bindings/http/request_fields.h"

namespace fasa::serve {

struct ResponsesRequest {
  ChatRequest chat;
  Json echo;  // request fields that the response repeats
};

// Throws ApiError.
ResponsesRequest read_responses_request(const Json& body);

}  // namespace fasa::serve
