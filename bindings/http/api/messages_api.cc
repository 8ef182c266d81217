// Anthropic's requests and routes.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "bindings/http/api/api_requests.h"
#include "bindings/http/api/apis.h"
#include "bindings/http/api/chat_fields.h"
#include "bindings/http/api/chat_history.h"
#include "bindings/http/api/content_text.h"
#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

constexpr int64_t kMaxTokens = INT32_MAX;

// Claude Code heads its system prompt with a block that changes with every request; in the prompt
// it would end the prefix that requests share.
Json without_billing(Json system) {
  constexpr std::string_view kBilling = "x-anthropic-billing-header:";
  const bool heads = system.is_array() && !system.empty() && system[0].is_object() &&
                     system[0].contains("text") && system[0]["text"].is_string() &&
                     system[0]["text"].get<std::string>().starts_with(kBilling);
  if (heads) system.erase(0);
  return system;
}

class Messages {
 public:
  void add_system(const RequestFields& fields, const char* name) {
    const std::string text = content_text(without_billing(member_of(fields.json(), name)),
                                          fields.path_of(name), OtherParts::kNoted);
    if (!text.empty()) history_.add("system", text);
  }
  void add_answer(const RequestFields& message) {
    history_.add("assistant", "");
    each_block(message, [&](const RequestFields& block, const std::string& type) {
      if (type == "tool_use") {
        history_.call(block.string("id").value_or(""), block.string("name").value_or(""),
                      member_of(block.json(), "input"));
      } else if (type == "thinking") {
        history_.think(block.string("thinking").value_or(""));
      } else if (type == "redacted_thinking" || type == "fallback") {
        log_skipped(type);
      } else {
        history_.say(answer_text(block, type));
      }
    });
    history_.say("");  // settles thoughts behind the text
  }
  // Results stand before the message's own text.
  void add_question(const RequestFields& message, OtherParts others) {
    Json parts = Json::array();
    bool results = false;
    const std::string path = message.path_of("content");
    const Json& content = member_of(message.json(), "content");
    if (content.is_null() && others == OtherParts::kRefused) {
      throw ApiError::bad_field(path, "missing; allowed: a string or a list of blocks");
    }
    std::string text;
    for (size_t i = 0; content.is_array() && i < content.size(); ++i) {
      if (content[i].is_object() && content[i].value("type", Json()) == "tool_result") {
        add_result(RequestFields(content[i], fmt::format("{}[{}]", path, i)));
        results = true;
        parts.push_back("");  // keeps the places of the others
      } else {
        parts.push_back(content[i]);
      }
    }
    text = content_text(content.is_array() ? parts : content, path, others);
    if (!results || !text.empty()) history_.add("user", text);
  }
  Json take() { return history_.take(); }

 private:
  template <class Read>
  void each_block(const RequestFields& message, Read read) {
    const Json& content = member_of(message.json(), "content");
    const std::string path = message.path_of("content");
    if (!content.is_array()) return history_.say(content_text(content, path, OtherParts::kNoted));
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string inner = fmt::format("{}[{}]", path, i);
      if (!content[i].is_object()) {
        history_.say(content_text(content[i], inner, OtherParts::kNoted));
        continue;
      }
      const RequestFields block(content[i], inner);
      read(block, block.string("type").value_or(""));
    }
  }
  // Tools that another server ran are told by notes.
  static std::string answer_text(const RequestFields& block, const std::string& type) {
    if (type.ends_with("_tool_use")) {
      return fmt::format("[called {}]\n", block.string("name").value_or("a tool"));
    }
    if (type.ends_with("_tool_result")) {
      const std::string text = content_text(member_of(block.json(), "content"),
                                            block.path_of("content"), OtherParts::kNoted);
      return fmt::format("[result: {}]\n", text);
    }
    if (type == "compaction") {
      return content_text(member_of(block.json(), "content"), block.path(), OtherParts::kNoted);
    }
    return content_text(Json::array({block.json()}), block.path(), OtherParts::kNoted);
  }
  void add_result(const RequestFields& block) {
    std::string text = content_text(member_of(block.json(), "content"), block.path_of("content"),
                                    OtherParts::kNoted);
    if (block.json().value("is_error", Json()) == true) text = "[error] " + text;
    history_.result(block.string("tool_use_id").value_or(""), "", text);
  }

  ChatHistory history_;
};

Json read_messages(const RequestFields& fields) {
  const Json& messages = require_messages(fields);
  const auto newest = newest_user_message(messages);
  Messages read;
  read.add_system(fields, "system");
  for (size_t i = 0; i < messages.size(); ++i) {
    const RequestFields message(messages[i], fmt::format("messages[{}]", i));
    const std::string role = message.string("role").value_or("");
    if (role == "user") {
      read.add_question(message, i == newest ? OtherParts::kRefused : OtherParts::kNoted);
    } else if (role == "assistant") {
      read.add_answer(message);
    } else if (role == "system" || role == "developer") {
      read.add_system(message, "content");
    } else if (i + 1 < messages.size()) {
      log_skipped(role);
    } else {
      throw ApiError::bad_field(
          message.path_of("role"),
          fmt::format("\"{}\"; allowed: user, assistant, system", role.substr(0, 40)));
    }
  }
  return read.take();
}

// {"name", "description", "input_schema"} and {"type", "name"}, as chat completions have them.
// Types with a date are tools that Anthropic's server knows.
Json openai_tools(const RequestFields& fields) {
  Json read = Json::object();
  const Json* const tools = fields.find("tools");
  if (tools != nullptr && !tools->is_array()) read["tools"] = *tools;  // refused later
  if (tools != nullptr && tools->is_array()) {
    read["tools"] = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      const RequestFields tool((*tools)[i], fmt::format("tools[{}]", i));
      const std::string type = tool.string("type").value_or("custom");
      if (type != "custom") {
        read["tools"].push_back({{"type", type == "function" ? "hosted" : type}});
        continue;
      }
      Json function = {{"name", tool.string("name").value_or("")}};
      if (const auto text = tool.string("description")) function["description"] = *text;
      if (const auto schema = tool.object("input_schema")) function["parameters"] = schema->json();
      read["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  const auto choice = fields.object("tool_choice");
  if (!choice) return read;
  const std::string type = choice->string("type").value_or("");
  read["tool_choice"] = type;
  if (type == "tool") {
    const std::string name = choice->string("name").value_or("");
    read["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  }
  if (choice->boolean("disable_parallel_tool_use").value_or(false)) {
    read["parallel_tool_calls"] = false;
  }
  return read;
}

// "output_config" with its effort and format, "output_format" (its earlier name), and "thinking".
void read_output(const RequestFields& fields, ChatRequest& chat) {
  set_template_variables(chat.context, fields);
  if (const auto format = fields.object("output_format")) chat.format = read_text_format(*format);
  const auto thinking = fields.object("thinking");
  const auto type = thinking ? thinking->string("type") : std::nullopt;
  if (type == "disabled") set_thinking(chat.context, "none");
  if (const auto config = fields.object("output_config")) {
    if (const auto format = config->object("format")) chat.format = read_text_format(*format);
    if (const auto effort = config->string("effort")) set_thinking(chat.context, *effort);
  }
  if (type && type != "disabled") set_thinking(chat.context, true);
  const Json* const budget = thinking ? thinking->find("budget_tokens") : nullptr;
  if (budget != nullptr && budget->is_number_integer()) chat.context["thinking_budget"] = *budget;
}

}  // namespace

ChatRequest read_messages_request(const Json& body, bool counted) {
  const RequestFields fields(body, "");
  ChatRequest chat;
  CompletionFields& common = chat.common;
  common.prompt_field = "messages";
  common.model = fields.string("model").value_or("");
  common.sampling = read_sampling(fields);
  common.sampling.max_tokens = fields.integer("max_tokens", 0, kMaxTokens);
  if (!common.sampling.max_tokens && !counted) {
    throw ApiError::bad_field("max_tokens", "missing; allowed: a whole number");
  }
  common.sampling.stop = read_stops(fields, "stop_sequences");
  common.stream = fields.boolean("stream").value_or(false);
  fields.refuse("container", {}, "this server has no containers; omit the field");
  fields.refuse("mcp_servers", {Json::array()}, "this server calls no MCP servers; omit the field");
  const Json tools = openai_tools(fields);
  chat.tools = read_tools(RequestFields(tools, ""), false);
  chat.context = {{"messages", read_messages(fields)}};
  read_output(fields, chat);
  if (chat.tools.used()) chat.context["tools"] = chat.tools.list;
  return chat;
}

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
