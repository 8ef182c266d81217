#include "bindings/http/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

constexpr int64_t kMaxTokens = INT32_MAX;
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxStopIds = 64;
constexpr size_t kMaxPrompts = 64;
constexpr size_t kMaxBiases = 1024;
constexpr int kMaxChoices = 8;
constexpr int kMaxTopLogprobs = 20;
constexpr size_t kMaxMessages = 10'000;
constexpr size_t kMaxCalls = 128;  // per message

std::vector<std::string> read_stops(const RequestFields& fields) {
  std::vector<std::string> stops = fields.strings("stop", kMaxStops);
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      throw ApiError::bad_field("stop", fmt::format("a string of {} bytes; allowed: 1 to {} bytes",
                                                    stop.size(), kMaxStopBytes));
    }
  }
  return stops;
}

// -1 is no limit, as for llama.cpp's server.
std::optional<int64_t> read_max_tokens(const RequestFields& fields, const char* name) {
  const Json* const value = fields.find(name);
  if (value != nullptr && *value == -1) return std::nullopt;
  return fields.integer(name, 1, kMaxTokens);
}

std::vector<int32_t> read_stop_ids(const RequestFields& fields) {
  const Json* const list = fields.find("stop_token_ids");
  if (list == nullptr) return {};
  const auto fits = [](const Json& id) {
    return id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX;
  };
  if (!list->is_array() || list->size() > kMaxStopIds ||
      !std::all_of(list->begin(), list->end(), fits)) {
    throw ApiError::bad_field(
        "stop_token_ids",
        fmt::format("{}; allowed: a list of at most {} token ids", kind_of(*list), kMaxStopIds));
  }
  return list->get<std::vector<int32_t>>();
}

int32_t token_of(const std::string& key) {
  int32_t id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || id < 0) {
    throw ApiError::bad_field("logit_bias", "the key \"" + key.substr(0, 40) +
                                                "\"; allowed: token ids of the model's vocabulary");
  }
  return id;
}

std::vector<std::pair<int32_t, float>> read_biases(const RequestFields& fields) {
  std::vector<std::pair<int32_t, float>> biases;
  const auto object = fields.object("logit_bias");
  if (!object) return biases;
  if (object->json().size() > kMaxBiases) {
    throw ApiError::bad_field(
        "logit_bias", fmt::format("{} entries; allowed: {}", object->json().size(), kMaxBiases));
  }
  for (const auto& [key, unused] : object->json().items()) {
    const int32_t id = token_of(key);
    const auto bias = object->number(key.c_str(), -100, 100);
    if (bias) biases.emplace_back(id, static_cast<float>(*bias));
  }
  return biases;
}

}  // namespace

SamplingFields read_sampling(const RequestFields& fields) {
  SamplingFields sampling;
  sampling.temperature = fields.number("temperature", 0, 2);
  sampling.top_p = fields.number("top_p", 0, 1);
  if (sampling.top_p == 0.0) sampling.top_p = 1e-6;  // greedy, as other servers treat 0
  sampling.min_p = fields.number("min_p", 0, 1);
  sampling.top_k = fields.integer("top_k", -1, INT32_MAX);
  sampling.presence_penalty = fields.number("presence_penalty", -2, 2);
  sampling.frequency_penalty = fields.number("frequency_penalty", -2, 2);
  sampling.repetition_penalty = fields.number("repetition_penalty", 0.01, 10);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    sampling.seed = static_cast<uint64_t>(*seed);
  }
  sampling.logit_bias = read_biases(fields);
  sampling.max_tokens = read_max_tokens(fields, "max_tokens");
  if (fields.find("max_completion_tokens") != nullptr) {
    sampling.max_tokens = read_max_tokens(fields, "max_completion_tokens");
  }
  sampling.min_tokens = fields.integer("min_tokens", 0, kMaxTokens).value_or(0);
  sampling.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  sampling.stop = read_stops(fields);
  sampling.stop_token_ids = read_stop_ids(fields);
  fields.refuse("repeat_penalty", {1, 1.0, 0},
                "this server does not support repeat_penalty, whose window is repeat_last_n; use "
                "repetition_penalty, which covers the prompt and the answer");
  fields.refuse("bad_words", {Json::array()}, "this server does not support bad_words");
  fields.refuse("allowed_token_ids", {}, "this server does not support allowed_token_ids");
  return sampling;
}

namespace {

CompletionFields read_common(const RequestFields& fields) {
  CompletionFields common;
  common.model = fields.string("model").value_or("");
  common.sampling = read_sampling(fields);
  common.choices = static_cast<int>(fields.integer("n", 1, kMaxChoices).value_or(1));
  common.stream = fields.boolean("stream").value_or(false);
  common.progress = fields.boolean("return_progress").value_or(false) && common.stream;
  if (const auto options = fields.object("stream_options")) {
    if (!common.stream) {
      throw ApiError::bad_field("stream_options", "allowed only if stream is true");
    }
    common.include_usage = options->boolean("include_usage").value_or(false);
  }
  common.slot = fields.integer("id_slot", -1, INT32_MAX).value_or(-1);
  fields.refuse("best_of", {common.choices},
                "this server returns all choices that it computes; omit best_of");
  return common;
}

// Joins text parts into one string; refuses other parts.
std::string text_of_parts(const Json& parts, const std::string& path) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const RequestFields part(parts[i], fmt::format("{}[{}]", path, i));
    const std::string type = part.string("type").value_or("");
    if (type != "text" && type != "input_text" && type != "output_text") {
      throw ApiError(
          400, "invalid_request_error",
          fmt::format("{}: \"{}\"; allowed: \"text\", because this server does not support media",
                      part.path_of("type"), type.substr(0, 40)),
          part.path_of("type"), "unsupported_value");
    }
    text += part.string("text").value_or("");
  }
  return text;
}

}  // namespace

// Templates expect the arguments as an object.
Json read_chat_calls(const Json& calls, const std::string& path) {
  if (!calls.is_array() || calls.size() > kMaxCalls) {
    throw ApiError::bad_field(
        path, fmt::format("{}; allowed: a list of at most {} calls", kind_of(calls), kMaxCalls));
  }
  Json read = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const RequestFields call(calls[i], fmt::format("{}[{}]", path, i));
    const auto function = call.object("function");
    if (!function) {
      throw ApiError::bad_field(call.path_of("function"), "missing; allowed: an object");
    }
    if (!function->string("name")) {
      throw ApiError::bad_field(function->path_of("name"), "missing; allowed: a string");
    }
    Json one = calls[i];
    one["type"] = "function";
    const Json* const arguments = function->find("arguments");
    Json& shown = one["function"]["arguments"];
    if (arguments == nullptr) {
      shown = Json::object();
    } else if (arguments->is_string()) {
      try {
        Json parsed = parse_body(arguments->get<std::string>());
        if (parsed.is_object()) shown = std::move(parsed);
      } catch (const ApiError&) {
        // The model's answer was cut off: pass its arguments on unchanged.
      }
    } else if (!arguments->is_object()) {
      throw ApiError::bad_field(function->path_of("arguments"),
                                kind_of(*arguments) + "; allowed: a string of JSON");
    }
    read.push_back(std::move(one));
  }
  return read;
}

void set_reasoning(Json& message, const std::string& text) {
  message["reasoning_content"] = message["thinking"] = text;
}

Json read_chat_message(const Json& message, const std::string& path) {
  const RequestFields fields(message, path);
  std::string role = fields.string("role").value_or("");
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles)) {
    throw ApiError::bad_field(
        path + ".role", fmt::format("\"{}\"; allowed: system, developer, user, assistant, tool",
                                    role.substr(0, 40)));
  }
  if (role == "developer") role = "system";  // templates know no other name for it
  Json read = message;
  read["role"] = role;
  if (const Json* const calls = fields.find("tool_calls"); calls != nullptr) {
    if (role != "assistant") {
      throw ApiError::bad_field(path + ".tool_calls", "allowed in messages of the role assistant");
    }
    read["tool_calls"] = read_chat_calls(*calls, path + ".tool_calls");
  }
  if (role == "tool") fields.string("tool_call_id");
  for (const char* const name : {"reasoning", "thinking", "reasoning_content"}) {
    const Json* const reasoning = fields.find(name);
    const bool known = role == "assistant" && reasoning != nullptr && reasoning->is_string();
    if (known) set_reasoning(read, reasoning->get<std::string>());
  }
  const Json* const content = fields.find("content");
  if (content == nullptr) {
    if (role != "assistant" || fields.find("tool_calls") == nullptr) {
      throw ApiError::bad_field(path + ".content", "missing; allowed: a string or a list of parts");
    }
    read["content"] = "";  // templates expect text
  } else if (content->is_array()) {
    read["content"] = text_of_parts(*content, path + ".content");
  } else {
    read["content"] = *fields.string("content");
  }
  return read;
}

namespace {

Json read_messages(const RequestFields& fields) {
  const Json* const messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty() ||
      messages->size() > kMaxMessages) {
    throw ApiError::bad_field(
        "messages",
        fmt::format("{}; allowed: a list of 1 to {} messages",
                    messages == nullptr ? "missing" : kind_of(*messages), kMaxMessages));
  }
  Json read = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    read.push_back(read_chat_message((*messages)[i], fmt::format("messages[{}]", i)));
  }
  return read;
}

void refuse_unsupported_chat(const RequestFields& fields) {
  fields.refuse("functions", {Json::array()}, "this server does not support functions; use tools");
  fields.refuse("function_call", {"none", "auto"},
                "this server does not support function_call; use tool_choice");
  fields.refuse("modalities", {{"text"}}, "this server returns only text; omit the field");
  fields.refuse("audio", {}, "this server returns only text; omit the field");
  fields.refuse("web_search_options", {}, "this server has no web search; omit the field");
}

int32_t prompt_token(const Json& item, size_t index) {
  const int64_t id = item.is_number_integer() ? item.get<int64_t>() : -1;
  if (id < 0 || id > INT32_MAX) {
    throw ApiError::bad_field(fmt::format("prompt[{}]", index),
                              kind_of(item) + "; allowed: token ids of the model's vocabulary");
  }
  return static_cast<int32_t>(id);
}

std::vector<int32_t> prompt_ids(const Json& list) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) ids.push_back(prompt_token(list[i], i));
  return ids;
}

// One prompt, or a list of them.
std::vector<CompletionPrompt> read_prompts(const RequestFields& fields) {
  const Json* const prompt = fields.find("prompt");
  if (prompt == nullptr) throw ApiError::bad_field("prompt", "missing; allowed: text or token ids");
  if (prompt->is_string()) return {prompt->get<std::string>()};
  const bool ids = prompt->is_array() && (prompt->empty() || prompt->front().is_number());
  if (ids) return {prompt_ids(*prompt)};
  if (!prompt->is_array() || prompt->size() > kMaxPrompts) {
    throw ApiError::bad_field(
        "prompt", fmt::format("{}; allowed: a text, a list of token ids, or a list of 1 to {} of "
                              "these",
                              kind_of(*prompt), kMaxPrompts));
  }
  std::vector<CompletionPrompt> prompts;
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& one = (*prompt)[i];
    if (one.is_string()) {
      prompts.emplace_back(one.get<std::string>());
    } else if (one.is_array()) {
      prompts.emplace_back(prompt_ids(one));
    } else {
      throw ApiError::bad_field(fmt::format("prompt[{}]", i),
                                kind_of(one) + "; allowed: a text, or a list of token ids");
    }
  }
  return prompts;
}

}  // namespace

ChatRequest read_chat_request(const Json& body) {
  const RequestFields fields(body, "");
  ChatRequest request;
  request.common = read_common(fields);
  request.common.prompt_field = "messages";
  request.common.logprobs = fields.boolean("logprobs").value_or(false);
  if (const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs)) {
    if (!request.common.logprobs && *top > 0) {
      throw ApiError::bad_field("top_logprobs", "allowed only if logprobs is true");
    }
    request.common.top_logprobs = static_cast<int>(*top);
  }
  refuse_unsupported_chat(fields);
  request.context = {{"messages", read_messages(fields)}, {"add_generation_prompt", true}};
  request.tools = read_tools(fields, false);
  request.format = read_response_format(fields);
  if (request.tools.used()) request.context["tools"] = request.tools.list;
  if (const auto extra = fields.object("chat_template_kwargs")) {
    for (const auto& [name, value] : extra->json().items()) {
      if (name != "messages" && name != "tools") request.context[name] = value;
    }
  }
  return request;
}

CompletionRequest read_completion_request(const Json& body) {
  const RequestFields fields(body, "");
  CompletionRequest request;
  request.common = read_common(fields);
  if (const auto top = fields.integer("logprobs", 0, kMaxTopLogprobs)) {
    request.common.logprobs = true;
    request.common.top_logprobs = static_cast<int>(*top);
  }
  fields.refuse("suffix", {""}, "this server does not support suffix; omit it");
  fields.refuse("echo", {false}, "this server does not return the prompt; allowed: false");
  request.format = read_response_format(fields);
  request.prompts = read_prompts(fields);
  return request;
}

}  // namespace fasa::serve
