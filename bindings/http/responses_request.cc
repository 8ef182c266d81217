#include "bindings/http/responses_request.h"

#include <fmt/format.h>

#include <utility>

#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

constexpr size_t kMaxItems = 10'000;
constexpr int64_t kMaxTokens = INT32_MAX;

[[noreturn]] void refuse_type(const RequestFields& fields, const std::string& type,
                              const char* allowed) {
  throw ApiError(
      400, "invalid_request_error",
      fmt::format("{}: \"{}\"; allowed: {}", fields.path_of("type"), type.substr(0, 40), allowed),
      fields.path_of("type"), "unsupported_value");
}

// A string, or a list of text parts.
std::string text_of(const RequestFields& item, const char* name) {
  const Json* const content = item.find(name);
  if (content == nullptr || !content->is_array()) return item.string(name).value_or("");
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const RequestFields part((*content)[i], fmt::format("{}[{}]", item.path_of(name), i));
    const std::string type = part.string("type").value_or("");
    if (type != "input_text" && type != "output_text" && type != "text") {
      refuse_type(part, type,
                  "input_text, output_text, because this server does not support media");
    }
    text += part.string("text").value_or("");
  }
  return text;
}

// The text of a reasoning item; without it, its summary.
std::string reasoning_of(const RequestFields& item) {
  std::string text;
  for (const char* const name : {"content", "summary"}) {
    const Json* const parts = item.find(name);
    if (!text.empty() || parts == nullptr || !parts->is_array()) continue;
    for (size_t i = 0; i < parts->size(); ++i) {
      const RequestFields part((*parts)[i], fmt::format("{}[{}]", item.path_of(name), i));
      text += part.string("text").value_or("");
    }
  }
  return text;
}

// Collects a chat's messages. Calls belong to the preceding assistant message, reasoning to the
// next one.
class Conversation {
 public:
  void add(const Json& item, const std::string& path) {
    const RequestFields fields(item, path);
    const std::string type = fields.string("type").value_or("message");
    if (type == "message") {
      add_message(fields, path);
    } else if (type == "function_call") {
      add_call(fields, path);
    } else if (type == "function_call_output") {
      messages_.push_back({{"role", "tool"},
                           {"tool_call_id", fields.string("call_id").value_or("")},
                           {"content", text_of(fields, "output")}});
    } else if (type == "reasoning") {
      reasoning_ += reasoning_of(fields);
    } else {
      refuse_type(fields, type, "message, function_call, function_call_output, reasoning");
    }
  }
  void add(const char* role, std::string text) {
    messages_.push_back({{"role", role}, {"content", std::move(text)}});
  }
  Json take() { return std::move(messages_); }

 private:
  void add_message(const RequestFields& fields, const std::string& path) {
    const std::string role = fields.string("role").value_or("");
    if (fields.find("content") == nullptr) {
      throw ApiError::bad_field(path + ".content", "missing; allowed: a string or a list of parts");
    }
    messages_.push_back(
        read_chat_message({{"role", role}, {"content", text_of(fields, "content")}}, path));
    add_reasoning();
  }
  void add_call(const RequestFields& fields, const std::string& path) {
    const bool follows = !messages_.empty() && messages_.back()["role"] == "assistant";
    if (!follows) messages_.push_back({{"role", "assistant"}, {"content", ""}});
    Json call = {{"id", fields.string("call_id").value_or("")},
                 {"type", "function"},
                 {"function",
                  {{"name", fields.string("name").value_or("")},
                   {"arguments", fields.string("arguments").value_or("{}")}}}};
    Json& message = messages_.back();
    Json calls = message.value("tool_calls", Json::array());
    calls.push_back(read_chat_calls(Json::array({std::move(call)}), path)[0]);
    message["tool_calls"] = std::move(calls);
    add_reasoning();
  }
  // The items of reasoning before this message of the assistant; others have none.
  void add_reasoning() {
    const std::string text = std::exchange(reasoning_, "");
    Json& message = messages_.back();
    if (text.empty() || message["role"] != "assistant") return;
    set_reasoning(message, message.value("reasoning_content", std::string()) + text);
  }

  Json messages_ = Json::array();
  std::string reasoning_;
};

// The request's own items.
Json read_input(const RequestFields& fields) {
  const Json* const input = fields.find("input");
  if (input != nullptr && input->is_string()) {
    return Json::array({{{"type", "message"}, {"role", "user"}, {"content", *input}}});
  }
  if (input == nullptr || !input->is_array() || input->empty() || input->size() > kMaxItems) {
    throw ApiError::bad_field(
        "input", fmt::format("{}; allowed: text, or a list of 1 to {} items",
                             input == nullptr ? "missing" : kind_of(*input), kMaxItems));
  }
  return *input;
}

Json read_messages(const RequestFields& fields, const Json& earlier, const Json& input) {
  Conversation conversation;
  if (const auto instructions = fields.string("instructions")) {
    conversation.add("system", *instructions);
  }
  for (const Json& item : earlier) conversation.add(item, "previous_response_id");
  for (size_t i = 0; i < input.size(); ++i) {
    conversation.add(input[i], fmt::format("input[{}]", i));
  }
  return conversation.take();
}

void refuse_unsupported(const RequestFields& fields, bool stores) {
  if (!stores) {
    fields.refuse("previous_response_id", {},
                  "this server stores no responses; send the whole conversation, or start the "
                  "server with --sessions-dir");
  }
  fields.refuse("conversation", {},
                "this server has no conversations; use previous_response_id, or send the whole "
                "conversation");
  fields.refuse("prompt", {},
                "this server does not store prompts; send the prompt's text as input");
  fields.refuse("background", {false},
                "this server does not support background responses; allowed: false");
  for (const char* const name :
       {"response_format", "json_schema", "structured_outputs", "guided_json", "guided_choice",
        "guided_regex", "guided_grammar", "grammar"}) {
    fields.refuse(name, {}, "not a field of /v1/responses; use text.format");
  }
  // A conversation that does not fit is an error either way.
  fields.refuse("truncation", {"disabled", "auto"}, "allowed: \"disabled\", \"auto\"");
  fields.refuse("top_logprobs", {0},
                "not supported here; use /v1/chat/completions for log-probabilities");
}

}  // namespace

ResponsesRequest read_responses_request(
    const Json& body, const std::function<StoredTurns(const std::string& id)>& stored) {
  const RequestFields fields(body, "");
  refuse_unsupported(fields, stored != nullptr);
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  chat.common.model = fields.string("model").value_or("");
  chat.common.sampling = read_sampling(fields);
  chat.common.sampling.max_tokens = fields.integer("max_output_tokens", 1, kMaxTokens);
  chat.common.stream = fields.boolean("stream").value_or(false);
  request.stored = fields.boolean("store").value_or(true) && stored != nullptr;
  chat.tools = read_tools(fields, true);
  if (const auto text = fields.object("text")) {
    if (const auto format = text->object("format")) chat.format = read_text_format(*format);
  }
  if (const auto previous = fields.string("previous_response_id")) {
    request.earlier = stored(*previous);
  }
  request.input = read_input(fields);
  chat.context = {{"messages", read_messages(fields, request.earlier.items, request.input)},
                  {"add_generation_prompt", true}};
  if (chat.tools.used()) chat.context["tools"] = chat.tools.list;
  for (const char* const name :
       {"instructions", "max_output_tokens", "previous_response_id", "temperature", "top_p",
        "tool_choice", "tools", "text", "metadata", "user"}) {
    if (const Json* const value = fields.find(name)) request.echo[name] = *value;
  }
  request.echo["parallel_tool_calls"] = chat.tools.parallel;
  request.echo["store"] = request.stored;
  return request;
}

}  // namespace fasa::serve
