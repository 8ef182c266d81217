#include "bindings/http/tool_format.h"

namespace fasa::serve {

std::optional<ToolFormat> tool_format_of(std::string_view chat_template) {
  const auto shows = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  if (shows("[TOOL_CALLS]"))
    return shows("[ARGS]") ? ToolFormat::kMistralArgs : ToolFormat::kMistral;
  // Some models put XML between these tags, which is a different format.
  if (shows("<tool_call>")) {
    return shows("<function=") ? std::nullopt : std::optional(ToolFormat::kHermes);
  }
  if (shows("<|python_tag|>") || shows("dictionary of argument name")) return ToolFormat::kLlama;
  return std::nullopt;
}

bool shows_tools(std::string_view chat_template) {
  return chat_template.find("tools") != std::string_view::npos ||
         tool_format_of(chat_template).has_value();
}

const std::vector<std::string>& message_marks() {
  static const std::vector<std::string> marks = {"<think>",      "</think>",     "<tool_call>",
                                                 "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>",
                                                 "[ARGS]",       "[CALL_ID]"};
  return marks;
}

}  // namespace fasa::serve
