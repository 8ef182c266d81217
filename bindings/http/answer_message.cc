#include "bindings/http/answer_message.h"

#include <algorithm>
#include <random>
#include <string_view>
#include <utility>

#include "bindings/http/api/request_fields.h"

namespace fasa::serve {

std::string finish_name(const AnswerMessage& message) {
  if (message.end == AnswerEnd::kMaxTokens) return "length";
  const bool calls = std::any_of(message.calls.begin(), message.calls.end(),
                                 [](const ToolCall& call) { return call.whole; });
  return calls ? "tool_calls" : "stop";
}

std::string text_of_cut(const ToolCall& call, bool behind_content) {
  return (behind_content ? "\n" : "") + call.name + " " + call.arguments;
}

AnswerMessage with_whole_calls(AnswerMessage message,
                               const std::function<bool(const ToolCall&)>& kept) {
  std::vector<ToolCall> whole;
  for (ToolCall& call : message.calls) {
    if ((kept && kept(call)) || (call.whole && parse_arguments(call.arguments))) {
      whole.push_back(std::move(call));
    } else {
      message.content += text_of_cut(call, !message.content.empty());
    }
  }
  message.calls = std::move(whole);
  return message;
}

std::string new_call_id() {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::random_device device;
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id;
  for (int i = 0; i < 9; ++i) id += kLetters[letter(device)];
  return id;
}

}  // namespace fasa::serve
