#include "bindings/http/api/api_requests.h"

#include <string>
#include <utility>

#include "bindings/http/api/chat_fields.h"
#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

// The fields that both routes have.
CompletionFields read_common(const RequestFields& fields) {
  CompletionFields common;
  common.model = fields.string("model").value_or("");
  common.stream = fields.boolean("stream").value_or(true);
  if (const auto options = fields.object("options")) {
    common.sampling = read_sampling(*options);
    common.sampling.max_tokens = read_max_tokens(*options, "num_predict");
  }
  return common;
}

ResponseFormat read_format(const RequestFields& fields) {
  const Json* const format = fields.find("format");
  if (format == nullptr || *format == "") return {};
  if (*format == "json") return {.kind = ResponseFormat::Kind::kJsonObject, .field = "format"};
  if (!format->is_object()) {
    throw ApiError::bad_field("format", kind_of(*format) + "; allowed: \"json\", or a schema");
  }
  return {.kind = ResponseFormat::Kind::kJsonSchema,
          .schema = *format,
          .field = "format",
          .place = "format"};
}

ChatRequest read_chat(const RequestFields& fields, Json messages) {
  ChatRequest request;
  request.common = read_common(fields);
  request.common.prompt_field = "messages";
  request.format = read_format(fields);
  request.tools = read_tools(fields, false);
  request.context = {{"messages", std::move(messages)}};
  if (request.tools.used()) request.context["tools"] = request.tools.list;
  if (const Json* const think = fields.find("think")) set_thinking(request.context, *think);
  return request;
}

}  // namespace

std::string ollama_load_reason(const Json& body, bool chat) {
  const RequestFields fields(body, "");
  const Json* const content = fields.find(chat ? "messages" : "prompt");
  const bool empty = content == nullptr || content->empty() || *content == "";
  if (!empty || (chat && content != nullptr && !content->is_array())) return "";
  const Json* const alive = fields.find("keep_alive");
  const bool unload = alive != nullptr && (*alive == 0 || *alive == "0" || *alive == "0s");
  return unload ? "unload" : "load";
}

ChatRequest read_ollama_chat(const Json& body) {
  const RequestFields fields(body, "");
  return read_chat(fields, read_chat_messages(fields));
}

bool is_raw_prompt(const Json& body) {
  return RequestFields(body, "").boolean("raw").value_or(false);
}

ChatRequest read_ollama_prompt(const Json& body) {
  const RequestFields fields(body, "");
  fields.refuse("suffix", {""}, "this server does not support suffix; omit it");
  fields.refuse("template", {""}, "this server uses the model's own template; omit the field");
  fields.refuse("images", {Json::array()}, "this server does not read media; omit the field");
  Json messages = Json::array();
  if (const auto system = fields.string("system"); system && !system->empty()) {
    messages.push_back({{"role", "system"}, {"content", *system}});
  }
  messages.push_back({{"role", "user"}, {"content", fields.string("prompt").value_or("")}});
  return read_chat(fields, std::move(messages));
}

CompletionRequest read_ollama_raw_prompt(const Json& body) {
  const RequestFields fields(body, "");
  fields.refuse("suffix", {""}, "this server does not support suffix; omit it");
  return {.common = read_common(fields),
          .format = read_format(fields),
          .prompts = {fields.string("prompt").value_or("")}};
}

}  // namespace fasa::serve
