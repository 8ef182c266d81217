// What a client asks for by POST /v1/responses: read and checked. Nothing is stored, so that all of a
// conversation comes with each request.
#pragma once

#include "bindings/http/openai_request.h"
#include "bindings/http/request_fields.h"

namespace fasa::serve {

struct ResponsesRequest {
  ChatRequest chat;
  Json echo;  // of the request, what a response repeats
};

// Throws ApiError.
ResponsesRequest read_responses_request(const Json& body);

}  // namespace fasa::serve
