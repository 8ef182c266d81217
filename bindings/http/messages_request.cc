#include "bindings/http/messages_request.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

constexpr size_t kMaxMessages = 10'000;
constexpr size_t kMaxStops = 16;
constexpr int64_t kMaxTokens = INT32_MAX;

[[noreturn]] void refuse_block(const RequestFields& block, const char* allowed) {
  const std::string type = block.string("type").value_or("");
  throw ApiError(400, "invalid_request_error",
                 fmt::format("{}: \"{}\"; allowed: {}, because this server does not support media",
                             block.path_of("type"), type.substr(0, 40), allowed),
                 block.path_of("type"), "unsupported_value");
}

// A string, or a list of text blocks.
std::string text_of(const RequestFields& fields, const char* name) {
  const Json* const content = fields.find(name);
  if (content == nullptr || !content->is_array()) return fields.string(name).value_or("");
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const RequestFields block((*content)[i], fmt::format("{}[{}]", fields.path_of(name), i));
    if (block.string("type") != "text") refuse_block(block, "text");
    text += block.string("text").value_or("");
  }
  return text;
}

class Messages {
 public:
  void add_system(const RequestFields& fields) {
    const std::string text = text_of(fields, "system");
    if (!text.empty()) list_.push_back({{"role", "system"}, {"content", text}});
  }
  void add(const RequestFields& message) {
    const std::string role = message.string("role").value_or("");
    if (role != "user" && role != "assistant") {
      throw ApiError::bad_field(
          message.path_of("role"),
          fmt::format("\"{}\"; allowed: user, assistant", role.substr(0, 40)));
    }
    const Json* const content = message.find("content");
    if (content == nullptr) {
      throw ApiError::bad_field(message.path_of("content"),
                                "missing; allowed: a string or a list of blocks");
    }
    read_ = {{"role", role}, {"content", ""}};
    if (content->is_array()) {
      for (size_t i = 0; i < content->size(); ++i) {
        add_block(
            RequestFields((*content)[i], fmt::format("{}[{}]", message.path_of("content"), i)));
      }
    } else {
      add_text(*message.string("content"));
    }
    const bool only_results = content->is_array() && results_ && read_["content"] == "";
    if (!only_results) list_.push_back(std::move(read_));
    results_ = false;
  }
  Json take() { return std::move(list_); }

 private:
  void add_text(const std::string& text) {
    read_["content"] = read_["content"].get<std::string>() + text;
  }
  void add_block(const RequestFields& block) {
    const std::string type = block.string("type").value_or("");
    const bool assistant = read_["role"] == "assistant";
    if (type == "text") return add_text(block.string("text").value_or(""));
    if (assistant && type == "tool_use") return add_call(block);
    if (!assistant && type == "tool_result") {  // before the message's own text
      results_ = true;
      list_.push_back({{"role", "tool"},
                       {"tool_call_id", block.string("tool_use_id").value_or("")},
                       {"content", text_of(block, "content")}});
      return;
    }
    if (assistant && type == "redacted_thinking") return;
    if (assistant && type == "thinking") {
      return set_reasoning(read_, read_.value("reasoning_content", std::string()) +
                                      block.string("thinking").value_or(""));
    }
    refuse_block(block, assistant ? "text, tool_use, thinking" : "text, tool_result");
  }
  void add_call(const RequestFields& block) {
    const auto input = block.object("input");
    Json calls = read_.value("tool_calls", Json::array());
    Json call = {{"id", block.string("id").value_or("")},
                 {"type", "function"},
                 {"function",
                  {{"name", block.string("name").value_or("")},
                   {"arguments", input ? input->json() : Json::object()}}}};
    calls.push_back(read_chat_calls(Json::array({std::move(call)}), block.path_of("input"))[0]);
    read_["tool_calls"] = std::move(calls);
  }

  Json list_ = Json::array();
  Json read_;             // the message being read
  bool results_ = false;  // it has tool results
};

Json read_messages(const RequestFields& fields) {
  const Json* const messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty() ||
      messages->size() > kMaxMessages) {
    throw ApiError::bad_field("messages",
                              fmt::format("allowed: a list of 1 to {} messages", kMaxMessages));
  }
  Messages read;
  read.add_system(fields);
  for (size_t i = 0; i < messages->size(); ++i) {
    read.add(RequestFields((*messages)[i], fmt::format("messages[{}]", i)));
  }
  return read.take();
}

// {"name", "description", "input_schema"} and {"type", "name"}, as chat completions have them.
Json openai_tools(const RequestFields& fields) {
  Json read = Json::object();
  const Json* const tools = fields.find("tools");
  if (tools != nullptr && !tools->is_array()) read["tools"] = *tools;  // refused later
  if (tools != nullptr && tools->is_array()) {
    read["tools"] = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      const RequestFields tool((*tools)[i], fmt::format("tools[{}]", i));
      if (tool.string("type").value_or("custom") != "custom") {
        throw ApiError(
            400, "invalid_request_error",
            tool.path_of("type") + ": this server has no built-in tools; allowed: custom",
            tool.path_of("type"), "unsupported_value");
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

}  // namespace

ChatRequest read_messages_request(const Json& body, bool counted) {
  const RequestFields fields(body, "");
  ChatRequest chat;
  CompletionFields& common = chat.common;
  common.prompt_field = "messages";
  common.model = fields.string("model").value_or("");
  common.sampling.max_tokens = fields.integer("max_tokens", 1, kMaxTokens);
  if (!common.sampling.max_tokens && !counted) {
    throw ApiError::bad_field("max_tokens", "missing; allowed: a whole number above 0");
  }
  common.sampling.temperature = fields.number("temperature", 0, 1);
  common.sampling.top_p = fields.number("top_p", 0, 1);
  common.sampling.top_k = fields.integer("top_k", 0, INT32_MAX);
  common.sampling.stop = fields.strings("stop_sequences", kMaxStops);
  common.stream = fields.boolean("stream").value_or(false);
  if (const auto format = fields.object("output_format")) {  // the earlier name
    chat.format = read_text_format(*format);
  }
  if (const auto config = fields.object("output_config")) {
    if (const auto format = config->object("format")) chat.format = read_text_format(*format);
  }
  fields.refuse("container", {}, "this server has no containers; omit the field");
  fields.refuse("mcp_servers", {Json::array()}, "this server calls no MCP servers; omit the field");
  const Json tools = openai_tools(fields);
  chat.tools = read_tools(RequestFields(tools, ""), false);
  chat.context = {{"messages", read_messages(fields)}, {"add_generation_prompt", true}};
  if (chat.tools.used()) chat.context["tools"] = chat.tools.list;
  return chat;
}

}  // namespace fasa::serve
