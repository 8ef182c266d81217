#include "bindings/http/message_parser.h"

#include <algorithm>
#include <utility>

namespace fasa::serve {
namespace {

constexpr std::string_view kThink = "<think>", kThought = "</think>";
constexpr std::string_view kHermesEnd = "</tool_call>";
constexpr std::string_view kBlanks = " \n\r\t";
constexpr size_t kMaxName = 256;

// The longest end of `text` that may be the beginning of `mark`, in bytes.
size_t possible_beginning(std::string_view text, std::string_view mark) {
  for (size_t size = std::min(mark.size() - 1, text.size()); size > 0; --size) {
    if (text.ends_with(mark.substr(0, size))) return size;
  }
  return 0;
}

size_t without_blanks_behind(std::string_view text) {
  const size_t last = text.find_last_not_of(kBlanks);
  return last == std::string_view::npos ? 0 : last + 1;
}

}  // namespace

MessageParser::MessageParser(MessageFormat format)
    : format_(std::move(format)), state_(format_.thinks ? State::kThinking : State::kBegin) {
  skips_blanks_ = format_.thinks;
}

std::vector<MessagePiece> MessageParser::push(std::string_view text) {
  held_ += text;
  while (step()) {
  }
  return std::exchange(pieces_, {});
}

std::vector<MessagePiece> MessageParser::finish() {
  over_ = true;
  while (step()) {
  }
  if (state_ == State::kThinking) {
    add(MessagePiece::Kind::kReasoning, held_.substr(0, without_blanks_behind(held_)));
  } else if (state_ == State::kCallName || (state_ == State::kCall && !announced_)) {
    give_up_call();
    add_content(held_.size());
  } else if (state_ == State::kBegin || state_ == State::kBody) {
    if (calls_ == 0 || held_.find_first_not_of(kBlanks) != std::string::npos) {
      add_content(held_.size());
    }
  }
  return std::exchange(pieces_, {});
}

bool MessageParser::step() {
  switch (state_) {
    case State::kBegin:
      return step_begin();
    case State::kThinking:
      return step_thinking();
    case State::kBody:
      return step_body();
    case State::kCallName:
      return step_call_name();
    case State::kCall:
      return step_call();
    case State::kAfterCall:
      return step_after_call();
  }
  return false;
}

std::string_view MessageParser::mark() const {
  if (!format_.tools) return "";
  switch (*format_.tools) {
    case ToolFormat::kHermes:
      return "<tool_call>";
    case ToolFormat::kLlama:
      return "<|python_tag|>";
    default:
      return "[TOOL_CALLS]";
  }
}

void MessageParser::skip_blanks() {
  held_.erase(0, std::min(held_.find_first_not_of(kBlanks), held_.size()));
}

void MessageParser::add(MessagePiece::Kind kind, std::string text) {
  if (text.empty() && kind != MessagePiece::Kind::kCallBegin) return;
  const bool of_call =
      kind == MessagePiece::Kind::kCallBegin || kind == MessagePiece::Kind::kCallArguments;
  if (of_call && format_.one_call && calls_ > 1) return;
  pieces_.push_back({kind, std::move(text), of_call ? calls_ - 1 : 0});
}

// Passes on the first `bytes` held bytes as content.
void MessageParser::add_content(size_t bytes) {
  said_ |= bytes > 0;
  add(MessagePiece::Kind::kContent, held_.substr(0, bytes));
  held_.erase(0, bytes);
}

bool MessageParser::step_begin() {
  const size_t first = held_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return false;
  const std::string_view text = std::string_view(held_).substr(first);
  if (!over_ && text.size() < kThink.size() && kThink.starts_with(text)) return false;
  state_ = State::kBody;
  if (text.starts_with(kThink)) {
    held_.erase(0, first + kThink.size());
    state_ = State::kThinking;
    skips_blanks_ = true;
  }
  return true;
}

// Whitespace around the reasoning is dropped together with its tags.
bool MessageParser::step_thinking() {
  if (skips_blanks_) skip_blanks();
  if (held_.empty()) return false;
  skips_blanks_ = false;
  const size_t end = held_.find(kThought);
  if (end != std::string::npos) {
    add(MessagePiece::Kind::kReasoning,
        held_.substr(0, without_blanks_behind(held_.substr(0, end))));
    held_.erase(0, end + kThought.size());
    state_ = State::kBody;
    skips_blanks_ = true;
    return true;
  }
  const size_t open = held_.size() - possible_beginning(held_, kThought);
  const size_t certain = without_blanks_behind(std::string_view(held_).substr(0, open));
  add(MessagePiece::Kind::kReasoning, held_.substr(0, certain));
  held_.erase(0, certain);
  return false;
}

bool MessageParser::step_body() {
  if (skips_blanks_) skip_blanks();
  if (held_.empty()) return false;
  skips_blanks_ = false;
  if (!format_.tools) {
    add_content(held_.size());
    return false;
  }
  const size_t first = held_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return false;
  if (*format_.tools == ToolFormat::kLlama && !said_ && held_[first] == '{') {
    const std::string blanks = held_.substr(0, first);
    held_.erase(0, first);
    begin_call(blanks);
    return true;
  }
  const size_t found = held_.find(mark());
  if (found == std::string::npos) {
    const size_t open = held_.size() - (over_ ? 0 : possible_beginning(held_, mark()));
    add_content(without_blanks_behind(std::string_view(held_).substr(0, open)));
    return false;
  }
  const size_t said = without_blanks_behind(std::string_view(held_).substr(0, found));
  const std::string before = held_.substr(said, found - said);
  add_content(said);
  held_.erase(0, before.size() + mark().size());
  begin_call(before + std::string(mark()));
  return true;
}

// `mark` becomes content again if no call follows.
void MessageParser::begin_call(std::string mark) {
  call_mark_ = std::move(mark);
  scanner_.emplace(format_.names);
  const bool mistral =
      *format_.tools == ToolFormat::kMistral || *format_.tools == ToolFormat::kMistralArgs;
  state_ = mistral ? State::kCallName : State::kCall;
}

void MessageParser::give_up_call() {
  const size_t given_up = call_mark_.size() + scanner_->raw().size();
  held_ = call_mark_ + scanner_->raw() + held_;
  scanner_.reset();
  state_ = State::kBody;
  add_content(given_up);
}

// Mistral's list of objects, or a name followed by its arguments.
bool MessageParser::step_call_name() {
  const size_t first = held_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return false;
  if (held_[first] == '[' || held_[first] == '{') {
    const size_t taken = held_[first] == '[' ? first + 1 : first;
    call_mark_ += held_.substr(0, taken);
    held_.erase(0, taken);
    state_ = State::kCall;
    return true;
  }
  const size_t arguments = held_.find('{', first);
  if (arguments == std::string::npos && held_.size() < kMaxName && !over_) return false;
  const std::string head = held_.substr(first, arguments - first);
  const std::string name = head.substr(0, head.find('['));
  const bool known =
      arguments != std::string::npos &&
      std::find(format_.names.begin(), format_.names.end(), name) != format_.names.end();
  if (!known) {
    give_up_call();
    return true;
  }
  held_.erase(0, arguments);
  scanner_.emplace(format_.names, name);
  announce_call();
  state_ = State::kCall;
  return true;
}

void MessageParser::announce_call() {
  ++calls_;
  announced_ = true;
  add(MessagePiece::Kind::kCallBegin, scanner_->name());
}

bool MessageParser::step_call() {
  if (scanner_->raw().empty() && !announced_) {
    const size_t blanks = std::min(held_.find_first_not_of(kBlanks), held_.size());
    call_mark_ += held_.substr(0, blanks);
    held_.erase(0, blanks);
  }
  CallScanner::State state = CallScanner::State::kOpen;
  size_t taken = 0;
  while (taken < held_.size() && state == CallScanner::State::kOpen) {
    state = scanner_->push(held_[taken]);
    if (state != CallScanner::State::kFailed) ++taken;
    if (!announced_ && scanner_->named()) announce_call();
  }
  held_.erase(0, taken);
  if (announced_) add(MessagePiece::Kind::kCallArguments, scanner_->take_arguments());
  if (state == CallScanner::State::kOpen) return false;
  if (announced_) {
    state_ = State::kAfterCall;
  } else {
    give_up_call();
  }
  return true;
}

// The end of a call, and possibly the beginning of the next.
bool MessageParser::step_after_call() {
  if (*format_.tools == ToolFormat::kHermes) {
    const size_t end = held_.find(kHermesEnd);
    if (end == std::string::npos) {
      held_.erase(0, held_.size() - possible_beginning(held_, kHermesEnd));
      return false;
    }
    held_.erase(0, end + kHermesEnd.size());
    return leave_call();
  }
  skip_blanks();
  if (held_.empty()) return false;
  if (held_[0] == ',' || held_[0] == ';') {
    held_.erase(0, 1);
    return true;
  }
  if (held_[0] == '{') {
    announced_ = false;
    begin_call("");
    state_ = State::kCall;
    return true;
  }
  if (held_[0] == ']') held_.erase(0, 1);
  return leave_call();
}

bool MessageParser::leave_call() {
  scanner_.reset();
  announced_ = false;
  state_ = State::kBody;
  skips_blanks_ = true;
  return true;
}

}  // namespace fasa::serve
