// Anthropic's routes.
#include <utility>

#include "bindings/http/apis.h"
#include "bindings/http/messages_request.h"

namespace fasa::serve {
namespace {

void converse(Completions& completions, Call& call) {
  const ChatRequest request = read_messages_request(call.body(), false);
  Generation generation = completions.of_chat(call, request);
  generation.form = make_messages_form(completions.reply_head("msg_"));
  completions.start(call, std::move(generation));
}

void count(Completions& completions, Call& call) {
  const ChatRequest request = read_messages_request(call.body(), true);
  call.send({{"input_tokens", completions.of_chat(call, request).prompts[0].size()}});
}

}  // namespace

Routes messages_routes(Completions& completions) {
  return {{"POST", "/v1/messages", [&](Call& call) { converse(completions, call); }},
          {"POST", "/v1/messages/count_tokens", [&](Call& call) { count(completions, call); }}};
}

}  // namespace fasa::serve
