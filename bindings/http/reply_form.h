// The form of an answer in one API: whole, or as frames of a stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/http/answer_message.h"
#include "bindings/http/api/request_fields.h"
#include "bindings/http/api/tool_fields.h"
#include "bindings/http/api_error.h"

namespace fasa::serve {

struct CompletionFields;  // openai_request.h

// One per request; not thread-safe.
class ReplyForm {
 public:
  virtual ~ReplyForm() = default;

  virtual std::string whole(const std::vector<AnswerMessage>& choices, const Usage& usage) = 0;

  virtual const char* content_type() const { return "text/event-stream; charset=utf-8"; }
  // Keeps a still stream open: a frame that watchdogs of clients see, without content.
  virtual std::string ping() = 0;
  // Frames of a stream ("data: {...}", an empty line); a text holds none or several.
  virtual std::string begin(int choices, const Usage& usage) = 0;
  virtual std::string progress(const PromptProgress&) { return ""; }
  virtual std::string piece(const ReplyPart& part) = 0;
  // `rest`: tokens not yet sent in a piece.
  virtual std::string end_choice(int choice, const AnswerMessage& message,
                                 const std::vector<TokenText>& rest) = 0;
  virtual std::string end(const std::vector<AnswerMessage>& choices, const Usage& usage) = 0;
  // The status line is already sent: an event reports the error.
  virtual std::string error(const ApiError& error) = 0;
  // The body of a response that is an error.
  virtual std::string error_body(const ApiError& error) const { return error_json(error); }
  // Clients of the API look in the stream for the error of a prompt that is too long.
  virtual bool streams_long_prompts() const { return false; }
};

struct ReplyHead {
  std::string id;       // the same throughout a stream
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

enum class ReplyKind { kChat, kText };  // /v1/chat/completions, /v1/completions

// `tools`: those of the request, for the form of their calls.
std::unique_ptr<ReplyForm> make_completion_form(ReplyHead head, ReplyKind kind,
                                                const CompletionFields& fields,
                                                std::vector<Tool> tools = {});
// /v1/responses; `echo`: request fields that the response repeats; `ended`: called with the
// response before it is sent, unless it failed.
std::unique_ptr<ReplyForm> make_responses_form(ReplyHead head, Json echo, std::vector<Tool> tools,
                                               std::function<void(const Json&)> ended);
// /completion of llama.cpp's server.
std::unique_ptr<ReplyForm> make_llama_form(ReplyHead head, int64_t prompt_tokens,
                                           const CompletionFields& fields);
// Ollama's /api/chat, else /api/generate.
std::unique_ptr<ReplyForm> make_ollama_form(ReplyHead head, bool chat);
// Anthropic's /v1/messages.
std::unique_ptr<ReplyForm> make_messages_form(ReplyHead head);

std::string frame_of(const std::string& json);
Json progress_json(const PromptProgress& progress);

}  // namespace fasa::serve
