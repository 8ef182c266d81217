// Splits an answer's text as it comes into reasoning, content and tool calls.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/answer_piece.h"
#include "runtime/text/answer/call_reader.h"
#include "runtime/text/answer/mark_codes.h"
#include "runtime/text/answer/mark_search.h"
#include "runtime/text/answer/quoted_text.h"

namespace fasa::text {

// A row of the table for one tokenizer: `row` has codes for the marks that are tokens. Immutable.
struct CodedFormat {
  CodedFormat() = default;
  explicit CodedFormat(const AnswerFormat& format) : row(format) {}  // no mark is a token
  CodedFormat(const AnswerFormat& format, const Tokenizer& tokenizer);

  AnswerFormat row;
  MarkCodes codes;
  std::vector<int32_t> ends;  // tokens that end an answer, besides the model's own
};

// Where an answer begins: what its prompt has opened already.
struct AnswerStart {
  enum class Kind { kNothing, kThought, kContent, kHeader };
  Kind kind = Kind::kNothing;
  size_t thought = 0;  // which of the format's
};
AnswerStart answer_start(const CodedFormat& coded, std::string_view prompt);

struct AnswerReading {
  std::shared_ptr<const CodedFormat> format;
  std::vector<CallableFunction> functions = {};  // none: what looks like a call is content
  AnswerStart start = {};
  bool one_call = false;  // calls after the first are dropped
};

// The result does not depend on how the text is divided. What looks like a call but is not one is
// content (or reasoning, within a thought). Marks that are no tokens do not count where they are
// quoted by backticks. Not thread-safe.
class AnswerReader {
 public:
  explicit AnswerReader(std::shared_ptr<const AnswerReading> reading);
  AnswerReader(const AnswerReader&) = delete;  // its call refers to it
  AnswerReader& operator=(const AnswerReader&) = delete;

  // `text`: with codes for marks that were tokens.
  std::vector<AnswerPiece> push(std::string_view text);
  // At the end of the text: what was held back.
  std::vector<AnswerPiece> finish();

  const CodedFormat& format() const { return *reading_->format; }
  bool thinking() const { return state_ == State::kThought; }
  // The mark that ends the thought, with codes.
  const std::string& thought_close() const { return thought_close_; }
  // The last token was the mark that begins calls, or a part with a header.
  bool at_call() const;

 private:
  enum class State { kBegin, kThought, kContent, kCalls, kHeader, kChannelCall, kBetween };

  bool step();  // false: needs more text to decide
  bool step_begin();
  bool step_thought();
  bool step_content();
  bool step_calls();
  bool step_header();
  bool step_channel_call();
  bool step_between();
  bool begins_alone(size_t blanks);
  bool step_mark(const std::string& mark, std::string before);
  bool enter_header(const std::string& header);
  bool open_thought(size_t taken, const Region& region);
  void begin_calls(size_t taken, std::string begun);
  void give_back(std::string text);
  FoundMark find_unquoted(const std::vector<std::string>& marks) const;
  void add(AnswerPiece::Kind kind, std::string text);
  void add_content(size_t bytes);
  void add_thought(size_t bytes);
  void pass_calls(std::vector<AnswerPiece> pieces);
  bool has_channels() const { return !row_.channels.open.empty(); }

  const std::shared_ptr<const AnswerReading> reading_;
  const AnswerFormat& row_;
  const std::string call_mark_;
  State state_ = State::kBegin;
  std::string held_;
  std::string thought_close_;  // that ends the thought
  std::vector<std::string> ends_of_thought_, ends_of_content_;
  struct Calls {
    std::optional<CallReader> reader;
    int count = 0;
    bool in_thought = false;  // these were begun in a thought
  } calls_;
  struct ChannelCall {
    std::unique_ptr<ArgumentReader> arguments;
    const CallableFunction* function = nullptr;
  } channel_call_;
  std::string header_;
  std::vector<AnswerPiece> pieces_;
  QuotedText quoted_;      // of the content so far
  char last_thought_ = 0;  // byte of the thought so far
  bool said_ = false;      // there is content
  bool opened_ = false;    // a mark has begun the content
  bool joins_ = false;     // content of another part follows
  bool skips_blanks_ = false;
  bool over_ = false;
};

}  // namespace fasa::text
