// Generates a model's answer to a prompt, for tasks whose metric reads text.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/eval/decode_run.h"
#include "runtime/eval/tasks/eval_task.h"
#include "runtime/llm/generation/sampling.h"
#include "runtime/text/tokenizer.h"

namespace fasa {

// Shortens `ids` to `most` tokens by removing the middle: instructions are at the beginning, the
// question at the end.
std::vector<int32_t> without_middle(std::vector<int32_t> ids, int64_t most);

// Decodes greedily or as sampled from the logits of the first token on: up to `max_tokens`, the
// model's end, or an answer that is complete.
std::string decode_answer(DecodeRun& run, std::span<const float> logits, const Sampling& sampling,
                          const text::TextCoder& tokenizer, int64_t max_tokens,
                          const std::function<bool(std::string_view)>& is_complete);

// Prefills the prompt, shared as the target says, and decodes up to `max_tokens` with the runtime's
// selection.
std::string write_answer(const EvalTarget& target, const text::TextCoder& tokenizer,
                         std::span<const int32_t> prompt, int64_t max_tokens,
                         const Sampling& sampling);

// The ids of a prompt: the model's initial tokens, then the text's.
std::vector<int32_t> encode_prompt(const text::TextCoder& tokenizer, std::string_view text);

// The ids of a text that follows another, without the prefix that a tokenizer puts before a text
// (SentencePiece's blank), where it can be detected.
std::vector<int32_t> encode_behind(const text::TextCoder& tokenizer, std::string_view text);

// `text` with each {name} replaced by the member of that name, {{ and }} by single braces.
std::string filled_template(std::string_view text, const nlohmann::json& members);

}  // namespace fasa
