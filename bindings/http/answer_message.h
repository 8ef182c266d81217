// An answer as clients are told of it, whatever the API: what was thought, said and called.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/http/message_parser.h"
#include "runtime/llm/answer.h"

namespace fasa::serve {

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

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON, unless the answer was cut in it
};

struct AnswerMessage {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  std::vector<TokenText> tokens;  // where log-probabilities were asked for
  AnswerEnd end = AnswerEnd::kOpen;
  int64_t token_count = 0;
  int64_t reasoning_tokens = 0;  // of them, about: those that came in a thought
};

// A piece of a choice, as it comes.
struct ReplyPart {
  int choice = 0;
  MessagePiece piece;
  std::string call_id = {};            // of a call's beginning
  std::vector<TokenText> tokens = {};  // where log-probabilities were asked for
  int64_t text_offset = 0;             // bytes of text before `tokens`
};

// Letters and digits, nine of them: Mistral's templates take no other.
std::string new_call_id();

}  // namespace fasa::serve
