// The form of an answer in one API: whole, or as frames of a stream.
#pragma once

#include <string>
#include <vector>

#include "bindings/http/answer_message.h"
#include "bindings/http/api_error.h"

namespace fasa::serve {

// One per request; not thread-safe.
class ReplyForm {
 public:
  virtual ~ReplyForm() = default;

  virtual std::string whole(const std::vector<AnswerMessage>& choices, const Usage& usage) = 0;

  // Frames of a stream ("data: {...}
  //
  // "); a text holds none or several.
  virtual std::string begin(int choices) = 0;
  virtual std::string piece(const ReplyPart& part) = 0;
  // `rest`: tokens not yet sent in a piece.
  virtual std::string end_choice(int choice, const AnswerMessage& message,
                                 const std::vector<TokenText>& rest) = 0;
  virtual std::string end(const std::vector<AnswerMessage>& choices, const Usage& usage) = 0;
  virtual std::string error(
      const ApiError& error) = 0;  // the status line is already sent: an event reports it
};

std::string frame_of(const std::string& json);
inline constexpr const char* kPingFrame = ": ping\n\n";

}  // namespace fasa::serve
