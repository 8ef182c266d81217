// Splits an answer's text as it comes into reasoning, content and tool calls.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/http/call_scanner.h"
#include "bindings/http/tool_format.h"

namespace fasa::serve {

struct MessageFormat {
  std::optional<ToolFormat> tools = {};  // none: text that looks like a call is content
  std::vector<std::string> names = {};   // of the tools that may be called
  bool thinks = false;                   // the prompt ends inside a thought
  bool one_call = false;                 // calls after the first are dropped
};

// A call comes as its beginning (`text` is the name), then the text of its arguments.
struct MessagePiece {
  enum class Kind { kContent, kReasoning, kCallBegin, kCallArguments };
  Kind kind;
  std::string text;
  int call = 0;  // which one, from 0
};

// The result does not depend on how the text is split into pushes. Text that looks like a call but
// is not one is content. Not thread-safe.
class MessageParser {
 public:
  explicit MessageParser(MessageFormat format);
  MessageParser(const MessageParser&) = delete;  // its scanner refers to it
  MessageParser& operator=(const MessageParser&) = delete;

  std::vector<MessagePiece> push(std::string_view text);
  bool thinking() const { return state_ == State::kThinking; }
  // At the end of the text: what was held back.
  std::vector<MessagePiece> finish();

 private:
  enum class State { kBegin, kThinking, kBody, kCallName, kCall, kAfterCall };

  bool step();  // false: needs more text to decide
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
  std::string call_mark_;  // the mark that began the call
  std::optional<CallScanner> scanner_;
  std::vector<MessagePiece> pieces_;
  int calls_ = 0;           // announced so far
  bool announced_ = false;  // the current one
  bool said_ = false;       // there is content
  bool skips_blanks_ = false;
  bool over_ = false;
};

}  // namespace fasa::serve
