#include "bindings/http/api/api_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "bindings/http/api/chat_fields.h"
#include "bindings/http/api/chat_history.h"
#include "bindings/http/api/content_text.h"
#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

constexpr size_t kMaxItems = 10'000;

// The text of a reasoning item; without it, its summary.
std::string reasoning_of(const Json& item) {
  for (const char* const name : {"content", "summary"}) {
    const std::string text = content_text(member_of(item, name), name, OtherParts::kNoted);
    if (!text.empty()) return text;
  }
  return "";
}

// Calls by other names than function_call: of tools that clients run themselves.
bool is_client_call(const std::string& type) {
  constexpr std::string_view kTypes[] = {"custom_tool_call", "local_shell_call",
                                         "shell_call",       "apply_patch_call",
                                         "computer_call",    "tool_search_call"};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

// What a call of such a tool holds, as arguments.
Json arguments_of(const Json& item) {
  if (item.contains("input")) return {{"input", item["input"]}};
  for (const char* const name : {"arguments", "action", "operation"}) {
    if (!member_of(item, name).is_null()) return item[name];
  }
  return nullptr;
}

// Turns input items into messages.
class Items {
 public:
  void add(const Json& item, const std::string& path, OtherParts others) {
    const RequestFields fields(item, path);
    const std::string type = fields.string("type").value_or("message");
    if (type == "message") return add_message(fields, others);
    if (type == "reasoning") return history_.think(reasoning_of(item));
    if (type == "function_call") {
      const std::string name = fields.string("name").value_or("");
      return history_.call(call_id(item), shown_tool_name(text_of(item, "namespace"), name),
                           member_of(item, "arguments"));
    }
    if (is_client_call(type)) return add_client_call(item, type);
    if (type.ends_with("_output")) return add_result(item, path);
    if (type == "mcp_call") return add_mcp_call(item);
    if (type == "additional_tools") {
      for (const Json& tool : member_of(item, "tools")) tools_.push_back(tool);
      return;
    }
    add_other(item, type, path);
  }
  void add(const char* role, const std::string& text) { history_.add(role, text); }
  Json take() { return history_.take(); }
  const Json& tools() const { return tools_; }  // of items

 private:
  static std::string call_id(const Json& item) {
    const std::string id = text_of(item, "call_id");
    return id.empty() ? text_of(item, "id") : id;
  }
  void add_message(const RequestFields& fields, OtherParts others) {
    std::string role = fields.string("role").value_or("");
    if (role == "developer") role = "system";  // templates know no other name for it
    if (role != "system" && role != "user" && role != "assistant") {
      if (others == OtherParts::kNoted) return log_skipped(role);
      throw ApiError::bad_field(
          fields.path_of("role"),
          fmt::format("\"{}\"; allowed: system, developer, user, assistant", role.substr(0, 40)));
    }
    const Json& content = member_of(fields.json(), "content");
    const std::string path = fields.path_of("content");
    const bool newest = role == "user" && others == OtherParts::kRefused;
    if (newest && content.is_null()) {
      throw ApiError::bad_field(path, "missing; allowed: a string or a list of parts");
    }
    add(role.c_str(), content_text(content, path, newest ? others : OtherParts::kNoted));
  }
  void add_client_call(const Json& item, const std::string& type) {
    std::string name = text_of(item, "name");
    if (name.empty()) name = type.substr(0, type.rfind("_call"));
    history_.call(call_id(item), shown_tool_name(text_of(item, "namespace"), name),
                  arguments_of(item));
  }
  void add_result(const Json& item, const std::string& path) {
    const Json& output = item.contains("output") ? item["output"] : member_of(item, "tools");
    std::string text = content_text(output, path + ".output", OtherParts::kNoted);
    history_.result(call_id(item), "", text);
  }
  // A call that another server ran, with its result.
  void add_mcp_call(const Json& item) {
    history_.call(call_id(item), text_of(item, "name"), member_of(item, "arguments"));
    const std::string error = content_text(member_of(item, "error"), "error", OtherParts::kNoted);
    const std::string text = content_text(member_of(item, "output"), "output", OtherParts::kNoted);
    history_.result(call_id(item), "", error.empty() ? text : "[error] " + error);
  }
  // Summaries are text; other calls are told by a note; the rest is skipped.
  void add_other(const Json& item, const std::string& type, const std::string& path) {
    if (type.ends_with("_call")) {
      return history_.say(fmt::format("[{}]\n", type.substr(0, 40)));
    }
    for (const char* const name : {"summary", "content", "text"}) {
      if (!type.starts_with("compaction")) break;
      const std::string text = content_text(member_of(item, name), path, OtherParts::kNoted);
      if (!text.empty()) return add("user", text);
    }
    log_skipped(type);
  }

  ChatHistory history_;
  Json tools_ = Json::array();
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

Items read_items(const RequestFields& fields, const Json& earlier, const Json& input) {
  Items items;
  if (const auto instructions = fields.string("instructions");
      instructions && *instructions != "") {
    items.add("system", *instructions);
  }
  for (const Json& item : earlier) items.add(item, "previous_response_id", OtherParts::kNoted);
  const auto newest = newest_user_message(input);
  for (size_t i = 0; i < input.size(); ++i) {
    const bool refused = newest ? i >= *newest : i + 1 == input.size();
    items.add(input[i], fmt::format("input[{}]", i),
              refused ? OtherParts::kRefused : OtherParts::kNoted);
  }
  return items;
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
  chat.common.sampling.max_tokens = read_max_tokens(fields, "max_output_tokens");
  chat.common.stream = fields.boolean("stream").value_or(false);
  request.stored = fields.boolean("store").value_or(true) && stored != nullptr;
  if (const auto text = fields.object("text")) {
    if (const auto format = text->object("format")) chat.format = read_text_format(*format);
  }
  if (const auto previous = fields.string("previous_response_id")) {
    request.earlier = stored(*previous);
  }
  request.input = read_input(fields);
  Items items = read_items(fields, request.earlier.items, request.input);
  chat.tools = read_tools(fields, true, items.tools());
  chat.context = {{"messages", items.take()}};
  set_template_variables(chat.context, fields);
  if (const auto reasoning = fields.object("reasoning")) {
    if (const Json* const effort = reasoning->find("effort")) set_thinking(chat.context, *effort);
    if (const Json* const on = reasoning->find("enabled")) set_thinking(chat.context, *on);
  }
  if (chat.tools.used()) chat.context["tools"] = chat.tools.list;
  for (const char* const name :
       {"instructions", "max_output_tokens", "previous_response_id", "temperature", "top_p",
        "tool_choice", "tools", "text", "metadata", "user", "reasoning"}) {
    if (const Json* const value = fields.find(name)) request.echo[name] = *value;
  }
  request.echo["parallel_tool_calls"] = chat.tools.parallel;
  request.echo["store"] = request.stored;
  return request;
}

}  // namespace fasa::serve
