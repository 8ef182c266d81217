#include "bindings/http/ollama_request.h"

#include <string>
#include <utility>

#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

void refuse_images(const RequestFields& fields) {
  fields.refuse("images", {Json::array()}, "this server does not support media; omit the field");
}

// The fields that both routes have, by OpenAI's names.
Json common_fields(const RequestFields& fields) {
  Json openai = {{"stream", fields.boolean("stream").value_or(true)}};
  std::string model = fields.string("model").value_or("");
  constexpr std::string_view kLatest = ":latest";
  if (model.ends_with(kLatest)) model.resize(model.size() - kLatest.size());
  openai["model"] = model;
  refuse_images(fields);
  if (const auto options = fields.object("options")) {
    for (const char* const name : {"temperature", "top_k", "top_p", "min_p", "seed", "stop",
                                   "presence_penalty", "frequency_penalty", "repeat_penalty"}) {
      if (const Json* const value = options->find(name)) openai[name] = *value;
    }
    const Json* const most = options->find("num_predict");
    if (most != nullptr) openai["max_tokens"] = *most == -2 ? Json(-1) : *most;
  }
  const Json* const format = fields.find("format");
  if (format != nullptr && format->is_object()) openai["json_schema"] = *format;
  if (format != nullptr && !format->is_object() && *format != "") {
    if (*format != "json") {
      throw ApiError::bad_field("format", kind_of(*format) + "; allowed: \"json\", or a schema");
    }
    openai["response_format"] = {{"type", "json_object"}};
  }
  if (const auto think = fields.find("think"); think != nullptr && think->is_boolean()) {
    openai["chat_template_kwargs"] = {{"enable_thinking", *think}};
  }
  return openai;
}

}  // namespace

ChatRequest read_ollama_chat(const Json& body) {
  const RequestFields fields(body, "");
  Json openai = common_fields(fields);
  if (const Json* const tools = fields.find("tools")) openai["tools"] = *tools;
  const Json* const messages = fields.find("messages");
  if (messages != nullptr && messages->is_array()) {
    for (size_t i = 0; i < messages->size(); ++i) {
      refuse_images(RequestFields((*messages)[i], "messages[" + std::to_string(i) + "]"));
    }
  }
  if (messages != nullptr) openai["messages"] = *messages;
  return read_chat_request(openai);
}

bool is_raw_prompt(const Json& body) {
  return RequestFields(body, "").boolean("raw").value_or(false);
}

ChatRequest read_ollama_prompt(const Json& body) {
  const RequestFields fields(body, "");
  Json openai = common_fields(fields);
  fields.refuse("suffix", {""}, "this server does not support suffix; omit it");
  fields.refuse("template", {""}, "this server uses the model's own template; omit the field");
  openai["messages"] = Json::array();
  if (const auto system = fields.string("system"); system && !system->empty()) {
    openai["messages"].push_back({{"role", "system"}, {"content", *system}});
  }
  openai["messages"].push_back(
      {{"role", "user"}, {"content", fields.string("prompt").value_or("")}});
  return read_chat_request(openai);
}

CompletionRequest read_ollama_raw_prompt(const Json& body) {
  const RequestFields fields(body, "");
  Json openai = common_fields(fields);
  fields.refuse("suffix", {""}, "this server does not support suffix; omit it");
  openai["prompt"] = fields.string("prompt").value_or("");
  return read_completion_request(openai);
}

}  // namespace fasa::serve
