// Takes an answer's text apart as it comes: what the model thinks, what it says, what it calls.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/http/call_scanner.h"
#include "bindings/http/tool_format.h"

namespace fasa::serve {

struct MessageFormat {
  std::optional<ToolFormat> tools = {};  // none: whatever looks like a call is text
  std::vector<std::string> names = {};   // of the tools that may be called
  bool thinks = false;                   // the prompt's end has begun a thought
  bool one_call = false;                 // calls behind the first are left out
};

// A call comes as its beginning, `text` being the name, and then its arguments' text.
struct MessagePiece {
  enum class Kind { kContent, kReasoning, kCallBegin, kCallArguments };
  Kind kind;
  std::string text;
  int call = 0;  // which one, from 0
};

// How the text is cut into pushes makes no difference to what the pieces say together. What looks
// like a call and is none is content. Not thread-safe.
class MessageParser {
 public:
  explicit MessageParser(MessageFormat format);
  MessageParser(const MessageParser&) = delete;  // its scanner refers to it
  MessageParser& operator=(const MessageParser&) = delete;

  std::vector<MessagePiece> push(std::string_view text);
  bool thinking() const { return state_ == State::kThinking; }
  // What was held back, at the text's end.
  std::vector<MessagePiece> finish();

 private:
  enum class State { kBegin, kThinking, kBody, kCallName, kCall, kAfterCall };

  bool step();  // false: it takes more text to know
  bool step_begin();
  bool step_thinking();
  bool step_body();
  bool step_call_name();
  bool step_call();
  bool step_after_call();
  void begin_call(std::string mark);
  void announce_call();
  void give_up_call();
  bool leave_call();
  std::string_view mark() const;
  void skip_blanks();
  void add(MessagePiece::Kind kind, std::string text);
  void add_content(size_t bytes);

  const MessageFormat format_;
  State state_;
  std::string held_;
  std::string call_mark_;  // what the call began with, before its object
  std::optional<CallScanner> scanner_;
  std::vector<MessagePiece> pieces_;
  int calls_ = 0;           // announced so far
  bool announced_ = false;  // the one that is read
  bool said_ = false;       // there is content
  bool skips_blanks_ = false;
  bool over_ = false;
};

}  // namespace fasa::serve
