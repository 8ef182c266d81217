#include "bindings/http/api/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "bindings/http/api/chat_fields.h"
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
// Beyond these values other servers' users mean the same.
constexpr double kMaxTemperature = 100;
constexpr double kMaxNumber = 1e300, kMaxSeed = 9e18;
constexpr int64_t kRepeatWindow = 64;  // of llama.cpp's repeat_penalty

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

std::vector<std::string> read_stops(const RequestFields& fields, const char* name) {
  std::vector<std::string> stops = fields.strings(name, kMaxStops);
  std::erase(stops, "");
  for (const std::string& stop : stops) {
    if (stop.size() <= kMaxStopBytes) continue;
    throw ApiError::bad_field(
        fields.path_of(name),
        fmt::format("a string of {} bytes; allowed: at most {}", stop.size(), kMaxStopBytes));
  }
  return stops;
}

std::optional<int64_t> read_max_tokens(const RequestFields& fields, const char* name) {
  const auto most = fields.integer(name, INT64_MIN, INT64_MAX);
  if (!most || *most < 0) return std::nullopt;
  return std::min(*most, kMaxTokens);
}

namespace {

// repetition_penalty covers the prompt and the answer; llama.cpp's repeat_penalty the last tokens.
void read_repetition(const RequestFields& fields, SamplingFields& sampling) {
  sampling.repetition_penalty = fields.number("repetition_penalty", 0.01, 10);
  const auto penalty = fields.number("repeat_penalty", 0, 10);
  if (sampling.repetition_penalty || !penalty) return;
  const int64_t window =
      fields.integer("repeat_last_n", INT64_MIN, INT64_MAX).value_or(kRepeatWindow);
  if (*penalty == 0 || window == 0) return;
  sampling.repetition_penalty = std::max(*penalty, 0.01);
  if (window > 0) sampling.repetition_window = window;
}

std::optional<DraftKind> read_drafts(const RequestFields& fields) {
  const auto name = fields.string("drafts");
  if (!name) return {};
  if (*name == "none") return DraftKind::kNone;
  if (*name == "lookup") return DraftKind::kLookup;
  if (*name == "mtp") return DraftKind::kMtp;
  throw ApiError::bad_field("drafts", fmt::format("\"{}\"; allowed: none, lookup, mtp", *name));
}

// OpenAI's: a text, or a list of its parts.
std::string read_prediction(const RequestFields& fields) {
  const auto prediction = fields.object("prediction");
  if (!prediction) return {};
  const Json* const content = prediction->find("content");
  if (content != nullptr && content->is_string()) return content->get<std::string>();
  if (content == nullptr || !content->is_array()) {
    throw ApiError::bad_field("prediction.content", "allowed: a text, or a list of text parts");
  }
  std::string text;
  for (const Json& part : *content) text += text_of(part, "text");
  return text;
}

}  // namespace

SamplingFields read_sampling(const RequestFields& fields) {
  SamplingFields sampling;
  if (auto temperature = fields.number("temperature", -kMaxNumber, kMaxNumber)) {
    sampling.temperature = std::clamp(*temperature, 0.0, kMaxTemperature);
  }
  sampling.top_p = fields.number("top_p", 0, 1);
  if (sampling.top_p == 0.0) sampling.top_p = 1e-6;  // greedy, as other servers treat 0
  sampling.min_p = fields.number("min_p", 0, 1);
  sampling.top_k = fields.integer("top_k", -1, INT32_MAX);
  sampling.presence_penalty = fields.number("presence_penalty", -2, 2);
  sampling.frequency_penalty = fields.number("frequency_penalty", -2, 2);
  read_repetition(fields, sampling);
  if (const auto seed = fields.number("seed", -kMaxSeed, kMaxSeed)) {
    const Json& given = *fields.find("seed");
    sampling.seed = given.is_number_integer() ? given.get<uint64_t>()
                                              : static_cast<uint64_t>(static_cast<int64_t>(*seed));
  }
  sampling.logit_bias = read_biases(fields);
  for (const char* const name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    if (fields.find(name) != nullptr) sampling.max_tokens = read_max_tokens(fields, name);
  }
  sampling.min_tokens = fields.integer("min_tokens", 0, kMaxTokens).value_or(0);
  sampling.drafts = read_drafts(fields);
  sampling.prediction = read_prediction(fields);
  sampling.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  sampling.stop = read_stops(fields, "stop");
  sampling.stop_token_ids = read_stop_ids(fields);
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
    common.include_usage = options->boolean("include_usage").value_or(false) && common.stream;
  }
  fields.refuse("best_of", {common.choices},
                "this server returns all choices that it computes; omit best_of");
  return common;
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
  request.context = {{"messages", read_chat_messages(fields)}};
  request.tools = read_tools(fields, false);
  request.format = read_response_format(fields);
  if (request.tools.used()) request.context["tools"] = request.tools.list;
  if (const auto add = fields.boolean("add_generation_prompt")) {
    request.context["add_generation_prompt"] = *add;
  }
  request.continues = fields.boolean("continue_final_message");
  set_template_variables(request.context, fields);
  if (const Json* const effort = fields.find("reasoning_effort")) {
    set_thinking(request.context, *effort);
  }
  if (const auto reasoning = fields.object("reasoning")) {  // OpenRouter's
    for (const char* const name : {"effort", "enabled"}) {
      if (const Json* const how = reasoning->find(name)) set_thinking(request.context, *how);
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
