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
  int64_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
};

struct CompletionFields {
  std::string model;                    // "" = the served model
  const char* prompt_field = "prompt";  // its name in errors
  SamplingFields sampling;
  int choices = 1;
  bool stream = false;
  bool include_usage = false;
  bool progress = false;  // of the prompt, in the stream
  bool logprobs = false;
  int top_logprobs = 0;
  int64_t slot = -1;  // see Slots::take
};

struct ChatRequest {
  CompletionFields common;
  ToolFields tools;
  ResponseFormat format;
  // The chat template's input: {"messages": [...], "tools": [...], ...}. Lists of text parts are
  // joined into one string; a call's arguments are parsed into an object.
  Json context;
};

// Text, or token ids.
using CompletionPrompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  CompletionFields common;
  ResponseFormat format;
  std::vector<CompletionPrompt> prompts;  // at least one
};

// For the other APIs; all throw ApiError.
SamplingFields read_sampling(const RequestFields& fields);
// A message as templates expect it. `path` names it in errors.
Json read_chat_message(const Json& message, const std::string& path);
Json read_chat_calls(const Json& calls, const std::string& path);
// An assistant's reasoning, by the names that templates have for it; they choose the turns that
// show it.
void set_reasoning(Json& message, const std::string& text);

// Throw ApiError for a wrong type, a value out of range, and an unsupported field.
ChatRequest read_chat_request(const Json& body);
CompletionRequest read_completion_request(const Json& body);

}  // namespace fasa::serve
