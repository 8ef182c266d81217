// An answer as clients receive it, in any API: reasoning, text and tool calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/llm/generation/answer.h"
#include "runtime/text/answer/answer_piece.h"

namespace fasa::serve {

using MessagePiece = text::AnswerPiece;

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  Answer::DraftCounts drafts = {};
  AuditCounts audit = {};
  std::chrono::nanoseconds prompt_time{};  // from the request to the first token
  std::chrono::nanoseconds answer_time{};  // from there to the last one
};

// How far a prompt has been read, in tokens.
struct PromptProgress {
  int64_t total = 0;
  int64_t cached = 0;     // found in the cache
  int64_t processed = 0;  // including the cached ones
  int64_t ms = 0;         // since its reading began
};

// A token in a reply. `text` has the token's own bytes, which may be a part of a character.
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
  std::string arguments;  // JSON, if the call is whole
  bool whole = false;     // else the answer ended within its arguments, or they broke
};

struct AnswerMessage {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  std::vector<TokenText> tokens;  // if log-probabilities were requested
  AnswerEnd end = AnswerEnd::kOpen;
  std::string stop_string;  // that ended it; "": none did
  int64_t token_count = 0;
  int64_t reasoning_tokens = 0;  // the approximate part of them that was reasoning
};

// "stop", "length", "tool_calls": only if a call is whole. Cancelled answers have no reader.
std::string finish_name(const AnswerMessage& message);

// The text that stands for a call that is not whole, behind other content.
std::string text_of_cut(const ToolCall& call, bool behind_content);
// Calls that are not whole become text of the content, for forms whose arguments are objects; those
// of the others are JSON.
// `kept`: calls that stay as they are; null: none.
AnswerMessage with_whole_calls(AnswerMessage message,
                               const std::function<bool(const ToolCall&)>& kept = nullptr);

// A piece of a streamed choice.
struct ReplyPart {
  int choice = 0;
  MessagePiece piece;
  std::string call_id = {};            // at the beginning of a call
  std::vector<TokenText> tokens = {};  // if log-probabilities were requested
  int64_t text_offset = 0;             // characters of text before `tokens`
};

// Nine letters and digits: Mistral's templates accept nothing else.
std::string new_call_id();

}  // namespace fasa::serve
