// What OpenAI's clients get: JSON of whole replies and of the pieces of a stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/llm/answer.h"
#include "tools/serve/request_fields.h"

namespace fasa::serve {

enum class ReplyKind { kChat, kText };  // /v1/chat/completions, /v1/completions

struct ReplyHead {
  ReplyKind kind = ReplyKind::kChat;
  std::string id;       // "chatcmpl-...", one for a whole stream
  int64_t created = 0;  // seconds since 1970
  std::string model;
  bool logprobs = false;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
};

// A token as replies tell of it. `text` need not be whole characters: its bytes are given too.
struct TokenText {
  std::string text;
  double logprob = 0;
  struct Other {
    std::string text;
    double logprob = 0;
  };
  std::vector<Other> top = {};
};

// A choice, or a piece of one.
struct ReplyPart {
  int choice = 0;
  std::string text = {};
  std::vector<TokenText> tokens = {};  // where log-probabilities were asked for
  int64_t text_offset = 0;             // bytes of text before `tokens`
};

// "stop", "length"; a cancelled answer has no reader.
std::string finish_name(AnswerEnd reason);

std::string whole_reply(const ReplyHead& head, const std::vector<ReplyPart>& choices,
                        const std::vector<AnswerEnd>& reasons, const Usage& usage);

// Frames of a stream ("data: {...}\n\n").
std::string first_frame(const ReplyHead& head, int choice);  // "" for text completions
std::string text_frame(const ReplyHead& head, const ReplyPart& part);
std::string finish_frame(const ReplyHead& head, int choice, AnswerEnd reason);
std::string usage_frame(const ReplyHead& head, const Usage& usage);
std::string frame_of(const std::string& json);
inline constexpr const char* kLastFrame = "data: [DONE]\n\n";
inline constexpr const char* kPingFrame = ": ping\n\n";

}  // namespace fasa::serve
