// How a model writes tool calls into its answer: its chat template shows it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::serve {

enum class ToolFormat {
  kHermes,       // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, Qwen's too
  kLlama,        // {"name": ..., "parameters": {...}}, alone; <|python_tag|> may stand before it
  kMistral,      // [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
  kMistralArgs,  // [TOOL_CALLS]name[ARGS]{...}, one or several
};

// Nothing where the template shows none of these.
std::optional<ToolFormat> tool_format_of(std::string_view chat_template);

// What the formats and thinking models mark text with. Where a vocabulary has them as control tokens
// they belong to the text of an answer all the same.
const std::vector<std::string>& message_marks();

}  // namespace fasa::serve
