// How an API tells of an answer: whole, or as frames of a stream.
#pragma once

#include <string>
#include <vector>

#include "bindings/http/answer_message.h"
#include "bindings/http/api_error.h"

namespace fasa::serve {

// One for each request; one thread at a time.
class ReplyForm {
 public:
  virtual ~ReplyForm() = default;

  virtual std::string whole(const std::vector<AnswerMessage>& choices, const Usage& usage) = 0;

  // Frames of a stream ("data: {...}\n\n"), none or several in a text.
  virtual std::string begin(int choices) = 0;
  virtual std::string piece(const ReplyPart& part) = 0;
  // `rest`: tokens that no piece has told of.
  virtual std::string end_choice(int choice, const AnswerMessage& message,
                                 const std::vector<TokenText>& rest) = 0;
  virtual std::string end(const std::vector<AnswerMessage>& choices, const Usage& usage) = 0;
  virtual std::string error(
      const ApiError& error) = 0;  // the status has gone out: an event says it
};

std::string frame_of(const std::string& json);
inline constexpr const char* kPingFrame = ": ping\n\n";

}  // namespace fasa::serve
