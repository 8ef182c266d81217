// The routes of each API. An API is a reader of its requests, a form of its answers, a form of its
// errors (api_error.h) and its routes.
#pragma once

#include "bindings/http/completions.h"
#include "bindings/http/routes.h"

namespace fasa::serve {

// All refer to `completions`, which outlives the routes.
Routes openai_routes(Completions& completions);
Routes responses_routes(Completions& completions);  // OpenAI's /v1/responses
Routes messages_routes(Completions& completions);   // Anthropic's
Routes ollama_routes(Completions& completions);
Routes llama_routes(Completions& completions);  // llama.cpp's server

}  // namespace fasa::serve
