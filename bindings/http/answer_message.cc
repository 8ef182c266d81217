#include "bindings/http/answer_message.h"

#include <random>
#include <string_view>

namespace fasa::serve {

std::string finish_name(const AnswerMessage& message) {
  if (message.end == AnswerEnd::kMaxTokens) return "length";
  return message.calls.empty() ? "stop" : "tool_calls";
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
