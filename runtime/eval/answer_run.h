// Answers that a model writes to a prompt, for tasks whose metric reads text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/eval/eval_task.h"
#include "runtime/llm/generator.h"
#include "runtime/text/tokenizer.h"

namespace fasa {

// Of more than `most` tokens the middle is left out: the beginning says what is asked, the end
// asks.
std::vector<int32_t> without_middle(std::vector<int32_t> ids, int64_t most);

// Prefills the prompt and decodes up to `max_tokens` with the runtime's selection. Throws what
// generate() throws; a failure in mid-answer is thrown too, for half an answer is none.
std::string write_answer(const EvalTarget& target, const text::TextCoder& tokenizer,
                         const std::vector<int32_t>& prompt, int64_t max_tokens,
                         const Sampling& sampling);

// The ids of a prompt: what the model's prompts begin with, then the text's.
std::vector<int32_t> encode_prompt(const text::TextCoder& tokenizer, std::string_view text);

// The ids of a text that follows another: without what a tokenizer puts before a text (SentencePiece's
// blank), as far as that can be told.
std::vector<int32_t> encode_behind(const text::TextCoder& tokenizer, std::string_view text);

// `text` with each {name} replaced by the member of that name, {{ and }} by single braces.
std::string filled_template(std::string_view text, const nlohmann::json& members);

}  // namespace fasa
