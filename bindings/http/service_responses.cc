// /v1/responses: new responses, and stored ones.
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/http/call.h"
#include "bindings/http/generation.h"
#include "bindings/http/responses_request.h"

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

}  // namespace

ResponsesRequest Service::responses_request(const Call& call) const {
  std::function<StoredTurns(const std::string&)> stored;
  if (engine_.options().sessions) {
    stored = [&](const std::string& id) { return turns_until(*records_, call.salt, id); };
  }
  ResponsesRequest request = read_responses_request(parse_body(call.request.body), stored);
  request.chat.common.prompt_field = "input";
  return request;
}

void Service::respond(Call& call) {
  ResponsesRequest request = responses_request(call);
  Generation generation = chat_generation(call, request.chat);
  std::function<void(const Json&)> keep;
  if (request.stored) {
    check_stored_size(request, generation.text);
    // A record of the whole conversation lies with its tokens, so that it needs no other.
    const auto turn = std::make_shared<AttachedRecords>(
        AttachedRecords{.salt = call.salt, .records = std::move(request.earlier.records)});
    generation.ended = [turn](std::vector<int32_t> ids) { turn->ids = std::move(ids); };
    keep = [this, turn, input = std::move(request.input)](const Json& response) {
      turn->records.push_back(response_record(response, input));
      records_->add(turn->salt, turn->records.back());
      engine_.attach(std::move(*turn));
    };
  }
  generation.form =
      make_responses_form(reply_head("resp_"), std::move(request.echo), std::move(keep));
  start(call, std::move(generation));
}

// The tokens of a request, which is not computed.
void Service::count_input(Call& call) {
  const ResponsesRequest request = responses_request(call);
  const Generation generation = chat_generation(call, request.chat);
  const Json counted = {{"object", "response.input_tokens"},
                        {"input_tokens", generation.prompts[0].size()}};
  call.exchange->send({.body = reply_text(counted)});
}

HttpResponse Service::stored_response(const Call& call, const std::string& id) const {
  if (call.request.query.find("stream=true") != std::string::npos) {
    throw ApiError::bad_field("stream", "stored responses are not streamed; allowed: false");
  }
  const auto response = find_response(*records_, call.salt, id);
  if (!response) throw unknown_response(id, engine_.options().sessions.has_value());
  return {.body = reply_text(*response)};
}

HttpResponse Service::delete_response(const Call& call, const std::string& id) {
  if (!is_response_id(id) || !records_->erase(call.salt, id)) {
    throw unknown_response(id, engine_.options().sessions.has_value());
  }
  engine_.detach(call.salt, id);
  return {.body = reply_text({{"id", id}, {"object", "response"}, {"deleted", true}})};
}

}  // namespace fasa::serve
