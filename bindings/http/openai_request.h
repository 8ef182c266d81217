// Requests of POST /v1/chat/completions and /v1/completions: parsed and checked, nothing computed
// yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/http/answer_grammar.h"
#include "bindings/http/request_fields.h"
#include "bindings/http/tool_fields.h"

namespace fasa::serve {

// Fields that both requests have. Missing ones default to the model's generation_config.json, then
// to OpenAI's defaults.
struct SamplingFields {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<int64_t> max_tokens;
  std::vector<std::string> stop;
};

struct CompletionFields {
  std::string model;  // "" = the served model
  SamplingFields sampling;
  int choices = 1;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  int top_logprobs = 0;
};

struct ChatRequest {
  CompletionFields common;
  ToolFields tools;
  ResponseFormat format;
  // The chat template's input: {"messages": [...], "tools": [...], ...}. Lists of text parts are
  // joined into one string; a call's arguments are parsed into an object.
  Json context;
};

struct CompletionRequest {
  CompletionFields common;
  std::variant<std::string, std::vector<int32_t>> prompt;  // text, or token ids
  bool echo = false;
};

// For the other APIs; all throw ApiError.
SamplingFields read_sampling(const RequestFields& fields);
// A message as templates expect it. `path` names it in errors.
Json read_chat_message(const Json& message, const std::string& path);
Json read_chat_calls(const Json& calls, const std::string& path);

// Throw ApiError for a wrong type, a value out of range, and an unsupported field.
ChatRequest read_chat_request(const Json& body);
CompletionRequest read_completion_request(const Json& body);

}  // namespace fasa::serve
