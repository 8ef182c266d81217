// The syntax of a model's tool calls, derived from its chat template.
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

// Nothing if the template has none of these formats.
std::optional<ToolFormat> tool_format_of(std::string_view chat_template);

// Whether the template renders tools, in any format.
bool shows_tools(std::string_view chat_template);

// The tags of tool calls and thoughts. Even where they are control tokens of the vocabulary, they
// belong to the text of an answer.
const std::vector<std::string>& message_marks();

}  // namespace fasa::serve
