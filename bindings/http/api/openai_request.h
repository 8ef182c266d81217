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
#include "bindings/http/api/request_fields.h"
#include "bindings/http/api/tool_fields.h"
#include "runtime/config/draft_kind.h"

namespace fasa::serve {

// Fields that both requests have. Missing ones default to the model's generation_config.json, then
// to OpenAI's defaults.
struct SamplingFields {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> repetition_window;  // tokens
  std::optional<uint64_t> seed;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  std::optional<DraftKind> drafts = {};
  std::string prediction = {};  // a text that the answer may repeat
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
};

struct ChatRequest {
  CompletionFields common;
  ToolFields tools;
  ResponseFormat format;
  // The chat template's input: {"messages": [...], "tools": [...], ...}, see in_history_form().
  Json context;
  std::optional<bool> continues;  // an answer at the end; default: one with text
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
// Negative numbers are no limit, as for llama.cpp's server and Ollama.
std::optional<int64_t> read_max_tokens(const RequestFields& fields, const char* name);
// Without empty ones.
std::vector<std::string> read_stops(const RequestFields& fields, const char* name);

// Throw ApiError for a wrong type, a value out of range, and an unsupported field.
ChatRequest read_chat_request(const Json& body);
CompletionRequest read_completion_request(const Json& body);

}  // namespace fasa::serve
