// OpenAI's /v1/responses: new responses, and stored ones.
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/http/api/api_requests.h"
#include "bindings/http/api/apis.h"

namespace fasa::serve {
namespace {

// Stored data that no token pays for is bounded: metadata, schemas, ids.
void check_stored_size(const ResponsesRequest& request, const std::string& prompt) {
  constexpr size_t kFree = size_t{64} << 10, kEscaped = 8;
  const size_t bytes = request.input.dump().size() + request.echo.dump().size();
  const size_t most = kFree + kEscaped * prompt.size();
  if (bytes <= most) return;
  throw ApiError::bad_field(
      "store", fmt::format("the fields to store have {} bytes; allowed for this prompt: {}; remove "
                           "some, or set store to false",
                           bytes, most));
}

ApiError unknown_response(const std::string& id, bool stores) {
  return {404, "not_found_error",
          fmt::format("response \"{}\" is not stored here{}", id.substr(0, 80),
                      stores ? "" : "; this server stores responses with --sessions-dir only"),
          "", "response_not_found"};
}

ResponsesRequest read(Completions& completions, const Call& call) {
  std::function<StoredTurns(const std::string&)> stored;
  if (completions.engine().options().sessions) {
    stored = [&](const std::string& id) {
      return turns_until(completions.records(), call.salt, id);
    };
  }
  ResponsesRequest request = read_responses_request(call.body(), stored);
  request.chat.common.prompt_field = "input";
  return request;
}

void respond(Completions& completions, Call& call) {
  ResponsesRequest request = read(completions, call);
  Generation generation = completions.of_chat(call, request.chat);
  std::function<void(const Json&)> keep;
  if (request.stored) {
    check_stored_size(request, generation.prompt.text);
    // A record of the whole conversation lies with its tokens, so that it needs no other.
    const auto turn = std::make_shared<AttachedRecords>(
        AttachedRecords{.salt = call.salt, .records = std::move(request.earlier.records)});
    generation.ended = [turn](std::vector<int32_t> ids) { turn->ids = std::move(ids); };
    keep = [&completions, turn, input = std::move(request.input)](const Json& response) {
      turn->records.push_back(response_record(response, input));
      completions.records().add(turn->salt, turn->records.back());
      completions.engine().attach(std::move(*turn));
    };
  }
  generation.form = make_responses_form(completions.reply_head("resp_"), std::move(request.echo),
                                        std::move(request.chat.tools.tools), std::move(keep));
  completions.start(call, std::move(generation));
}

// The tokens of a request, which is not computed.
void count(Completions& completions, Call& call) {
  const ResponsesRequest request = read(completions, call);
  call.send({{"object", "response.input_tokens"},
             {"input_tokens", completions.of_chat(call, request.chat).prompts[0].size()}});
}

void send_stored(Completions& completions, Call& call) {
  if (call.request.query.find("stream=true") != std::string::npos) {
    throw ApiError::bad_field("stream", "stored responses are not streamed; allowed: false");
  }
  const auto response = find_response(completions.records(), call.salt, call.name);
  if (!response) {
    throw unknown_response(call.name, completions.engine().options().sessions.has_value());
  }
  call.send(*response);
}

void forget(Completions& completions, Call& call) {
  const std::string& id = call.name;
  if (!is_response_id(id) || !completions.records().erase(call.salt, id)) {
    throw unknown_response(id, completions.engine().options().sessions.has_value());
  }
  completions.engine().detach(call.salt, id);
  call.send({{"id", id}, {"object", "response"}, {"deleted", true}});
}

}  // namespace

Routes responses_routes(Completions& completions) {
  return {{"POST", "/v1/responses", [&](Call& call) { respond(completions, call); }},
          {"POST", "/v1/responses/input_tokens", [&](Call& call) { count(completions, call); }},
          {"GET", "/v1/responses/", [&](Call& call) { send_stored(completions, call); }},
          {"DELETE", "/v1/responses/", [&](Call& call) { forget(completions, call); }}};
}

}  // namespace fasa::serve
