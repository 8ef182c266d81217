// Bodies of POST requests of all APIs. A rejected body is a client error whose message can be sent.
#include <cstdlib>

#include "bindings/http/api/api_requests.h"
#include "bindings/http/api_error.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace fasa::serve;

template <typename Read>
void read_or_refuse(const std::string& body, Read read) {
  try {
    read(parse_body(body));
  } catch (const ApiError& error) {
    if (error.status() < 400 || error.status() >= 500) std::abort();
    if (error_json(error).empty()) std::abort();
  }
}

}  // namespace

FASA_FUZZ_TARGET(api_request) {
  const std::string body(fasa::testing::text_of(data, size));
  read_or_refuse(body, read_chat_request);
  read_or_refuse(body, read_completion_request);
  read_or_refuse(body, read_llama_request);
  read_or_refuse(body, read_ollama_chat);
  read_or_refuse(body, read_ollama_prompt);
  read_or_refuse(body, read_ollama_raw_prompt);
  read_or_refuse(body, [](const Json& json) { read_responses_request(json, nullptr); });
  read_or_refuse(body, [](const Json& json) { read_messages_request(json, json.size() % 2 == 0); });
}
