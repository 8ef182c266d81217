// Responses of /v1/chat/completions and /v1/completions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings/http/reply_form.h"

namespace fasa::serve {

enum class ReplyKind { kChat, kText };  // /v1/chat/completions, /v1/completions

struct ReplyHead {
  ReplyKind kind = ReplyKind::kChat;
  std::string id;       // "chatcmpl-...", the same throughout a stream
  int64_t created = 0;  // seconds since 1970
  std::string model;
  bool logprobs = false;
  bool include_usage = false;
};

class CompletionForm final : public ReplyForm {
 public:
  explicit CompletionForm(ReplyHead head) : head_(std::move(head)) {}

  std::string whole(const std::vector<AnswerMessage>& choices, const Usage& usage) override;
  std::string begin(int choices) override;
  std::string piece(const ReplyPart& part) override;
  std::string end_choice(int choice, const AnswerMessage& message,
                         const std::vector<TokenText>& rest) override;
  std::string end(const std::vector<AnswerMessage>& choices, const Usage& usage) override;
  std::string error(const ApiError& error) override;

 private:
  const ReplyHead head_;
};

// "stop", "length", "tool_calls". Cancelled answers have no reader.
std::string finish_name(const AnswerMessage& message);

}  // namespace fasa::serve
