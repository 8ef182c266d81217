// Reads the calls of an answer, from behind the mark that begins them to the one that ends them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/text/answer/answer_piece.h"
#include "runtime/text/answer/argument_reader.h"
#include "runtime/text/answer/call_object.h"

namespace fasa::text {

// A call is announced once its name is known and its arguments have begun; what breaks before that
// is no call, and its text is given back. Not thread-safe.
class CallReader {
 public:
  // Both must outlive the reader. `begun`: the text that began the calls.
  CallReader(const CallFormat& format, const std::vector<CallableFunction>& functions,
             std::string begun, int first_call);

  enum class Progress { kMore, kDone };
  // Takes what it reads from the beginning of `text`, and adds pieces. `over`: no more follows.
  Progress read(std::string& text, bool over, std::vector<AnswerPiece>& pieces);
  // What was read since the last announced call and is part of none.
  const std::string& given_back() const { return raw_; }
  int calls() const { return calls_; }  // announced, with those before
  // Nothing of the calls was read yet.
  bool fresh() const { return step_ == Step::kBegin; }

 private:
  enum class Step { kBegin, kOpen, kHead, kObject, kArguments, kClose, kNext };
  enum class Result { kGo, kMore, kStop, kFail };

  Result step(std::string& text, bool over, std::vector<AnswerPiece>& pieces);
  Result begin(std::string& text);
  Result open(std::string& text, bool over);
  Result head(std::string& text, bool over);
  Result arguments(std::string& text, bool over, std::vector<AnswerPiece>& pieces);
  Result close(std::string& text, bool over, std::vector<AnswerPiece>& pieces);
  Result next(std::string& text, bool over);
  Result end_with(std::string& text, size_t bytes, Result result);
  void take(std::string& text, size_t bytes);
  bool in_object() const { return !format_.name_member.empty(); }
  void announce(std::vector<AnswerPiece>& pieces);

  const CallFormat& format_;
  const std::vector<CallableFunction>& functions_;
  std::vector<std::string> closing_;  // the marks behind a call
  size_t closed_ = 0;                 // of them
  Step step_ = Step::kBegin;
  std::string raw_;
  const CallableFunction* function_ = nullptr;  // of a bare name
  std::unique_ptr<ArgumentReader> arguments_;
  std::optional<CallObject> object_;
  int calls_;
  bool announced_ = false;
  bool listed_ = false;  // within [ ]
};

// Bytes of a function's name at the beginning of the text.
size_t name_size(std::string_view text);

}  // namespace fasa::text
