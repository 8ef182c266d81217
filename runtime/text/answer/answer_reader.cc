#include "runtime/text/answer/answer_reader.h"

#include <algorithm>
#include <utility>

#include "runtime/text/answer/mark_search.h"

namespace fasa::text {
namespace {

using Kind = AnswerPiece::Kind;

// The mark is a token, perhaps with text behind it: "<|channel>thought".
bool is_token(const std::string& mark) { return !mark.empty() && MarkCodes::is_code(mark[0]); }

std::string trimmed(const std::string& text) { return std::string(without_blanks(text)); }

}  // namespace

AnswerReader::AnswerReader(std::shared_ptr<const AnswerReading> reading)
    : reading_(std::move(reading)),
      row_(reading_->format->row),
      call_mark_(reading_->functions.empty() ? "" : trimmed(row_.call_mark())) {
  if (has_channels()) {
    thought_close_ = row_.channels.end;
    ends_of_content_ = {row_.channels.end, row_.channels.start, row_.calls.close};
  } else {
    for (const Region& region : row_.thoughts) {
      for (const std::string& mark : {trimmed(region.open), trimmed(region.close)}) {
        if (is_token(mark)) ends_of_content_.push_back(mark);
      }
    }
    for (const Region& region : row_.contents) {
      for (const std::string& mark : {region.open, region.close}) {
        ends_of_content_.push_back(mark);
      }
    }
    ends_of_content_.push_back(call_mark_);
  }
  if (reading_->start.kind == AnswerStart::Kind::kThought) {
    open_thought(0, has_channels() ? Region{} : row_.thoughts[reading_->start.thought]);
  } else if (reading_->start.kind == AnswerStart::Kind::kContent) {
    opened_ = true;
    state_ = State::kContent;
  } else if (has_channels()) {
    state_ = State::kHeader;
  }
}

std::vector<AnswerPiece> AnswerReader::push(std::string_view text) {
  held_ += text;
  while (step()) {
  }
  return std::exchange(pieces_, {});
}

std::vector<AnswerPiece> AnswerReader::finish() {
  over_ = true;
  while (step()) {
  }
  return std::exchange(pieces_, {});
}

bool AnswerReader::at_call() const {
  if (!held_.empty()) return false;
  if (has_channels()) {
    return state_ == State::kHeader && is_token(row_.channels.open) &&
           header_ == row_.channels.open;
  }
  return state_ == State::kCalls && is_token(call_mark_) && calls_.reader->fresh();
}

bool AnswerReader::step() {
  switch (state_) {
    case State::kBegin:
      return step_begin();
    case State::kThought:
      return step_thought();
    case State::kContent:
      return step_content();
    case State::kCalls:
      return step_calls();
    case State::kHeader:
      return step_header();
    case State::kChannelCall:
      return step_channel_call();
    case State::kBetween:
      return step_between();
  }
  return false;
}

void AnswerReader::add(Kind kind, std::string text) {
  if (text.empty()) return;
  pieces_.push_back({kind, reading_->format->codes.spelled(text)});
}

// Passes on the first `bytes` held bytes as content.
void AnswerReader::add_content(size_t bytes) {
  if (bytes == 0) return;
  const std::string text = held_.substr(0, bytes);
  quoted_.push(text);
  said_ = true;
  add(Kind::kContent, text);
  held_.erase(0, bytes);
}

void AnswerReader::add_thought(size_t bytes) {
  if (bytes == 0) return;
  last_thought_ = held_[bytes - 1];
  add(Kind::kReasoning, held_.substr(0, bytes));
  held_.erase(0, bytes);
}

void AnswerReader::pass_calls(std::vector<AnswerPiece> pieces) {
  for (AnswerPiece& piece : pieces) {
    if (reading_->one_call && piece.call > 0) continue;
    piece.text = reading_->format->codes.spelled(piece.text);
    pieces_.push_back(std::move(piece));
  }
}

// --- thoughts ---

bool AnswerReader::open_thought(size_t taken, const Region& region) {
  held_.erase(0, taken);
  state_ = State::kThought;
  thought_close_ = trimmed(region.close);
  ends_of_thought_ = {thought_close_, call_mark_};
  for (const std::string& aside : row_.asides) ends_of_thought_.push_back(aside);
  if (has_channels()) {
    thought_close_ = row_.channels.end;
    ends_of_thought_ = {row_.channels.end, row_.channels.start, row_.calls.close};
  }
  skips_blanks_ = true;
  last_thought_ = 0;
  return true;
}

bool AnswerReader::step_begin() {
  const size_t first = leading_blanks(held_);
  if (first == held_.size() && !over_) return false;
  const std::string_view text = std::string_view(held_).substr(first);
  for (const Region& region : row_.thoughts) {
    const MarkMatch match = match_mark(text, region.open);
    if (match.open(over_)) return false;
    if (match.yes() && !text.empty()) return open_thought(first + match.size, region);
  }
  state_ = State::kContent;
  return true;
}

// White space around the reasoning is dropped together with its marks.
bool AnswerReader::step_thought() {
  if (skips_blanks_) held_.erase(0, leading_blanks(held_));
  if (held_.empty()) return false;
  skips_blanks_ = false;
  FoundMark found = find_mark(held_, ends_of_thought_);
  // `</think>` in backticks is a mark that is spoken of.
  while (found.found() && !is_token(ends_of_thought_[found.which])) {
    const size_t end = found.at + ends_of_thought_[found.which].size();
    const char before = found.at > 0 ? held_[found.at - 1] : last_thought_;
    if (before != '`' || (end == held_.size() && over_)) break;
    if (end == held_.size()) {
      add_thought(found.at - std::min<size_t>(found.at, 1));
      return false;
    }
    if (held_[end] != '`') break;
    found = find_mark(held_, ends_of_thought_, end);
  }
  if (!found.found()) {
    const size_t open = over_ ? 0 : possible_mark(held_, ends_of_thought_);
    add_thought(without_trailing_blanks(std::string_view(held_).substr(0, held_.size() - open)));
    if (over_) held_.clear();
    return false;
  }
  const std::string& mark = ends_of_thought_[found.which];
  const bool aside = std::find(row_.asides.begin(), row_.asides.end(), mark) != row_.asides.end();
  if (aside) {
    add_thought(found.at);
    held_.erase(0, mark.size());
    return true;
  }
  const bool calls = mark == call_mark_ && !has_channels();
  add_thought(without_trailing_blanks(std::string_view(held_).substr(0, found.at)));
  const size_t blanks = leading_blanks(held_);
  if (!calls) {
    held_.erase(0, blanks + (has_channels() && mark == row_.channels.start ? 0 : mark.size()));
    state_ = has_channels() ? State::kBetween : State::kContent;
    skips_blanks_ = true;
    return true;
  }
  if (!row_.call_ends_thought && !over_) {
    const size_t close = held_.find(thought_close_, blanks);
    if (close == std::string::npos) return false;
    add_thought(without_trailing_blanks(std::string_view(held_).substr(0, close)));
    return true;
  }
  calls_.in_thought = true;
  begin_calls(blanks + mark.size(), held_.substr(0, blanks) + mark);
  return true;
}

// --- content ---

// Text marks within code are quoted.
FoundMark AnswerReader::find_unquoted(const std::vector<std::string>& marks) const {
  FoundMark found = find_mark(held_, marks);
  while (found.found() && !is_token(marks[found.which])) {
    QuotedText quoted = quoted_;
    quoted.push(std::string_view(held_).substr(0, found.at));
    if (!quoted.open()) break;
    found = find_mark(held_, marks, found.at + 1);
  }
  return found;
}

bool AnswerReader::step_content() {
  if (skips_blanks_) held_.erase(0, leading_blanks(held_));
  if (held_.empty()) return false;
  skips_blanks_ = false;
  if (joins_) {
    add(Kind::kContent, "\n");
    joins_ = false;
  }
  const size_t first = leading_blanks(held_);
  if (!said_ && row_.calls.alone && !reading_->functions.empty()) {
    if (first == held_.size() && !over_) return false;
    if (!begins_alone(first)) return false;
    if (state_ == State::kCalls) return true;
  }
  const FoundMark found = find_unquoted(ends_of_content_);
  if (!found.found()) {
    const bool trims = !call_mark_.empty() || !row_.contents.empty();
    size_t certain = held_.size() - (over_ ? 0 : possible_mark(held_, ends_of_content_));
    if (trims && !over_)
      certain = without_trailing_blanks(std::string_view(held_).substr(0, certain));
    const bool blank = over_ && calls_.count > 0 && leading_blanks(held_) == held_.size();
    if (blank) held_.clear();
    add_content(std::min(certain, held_.size()));
    return false;
  }
  size_t said = found.at;
  if (!has_channels()) said = without_trailing_blanks(std::string_view(held_).substr(0, said));
  std::string before = held_.substr(said, found.at - said);
  add_content(said);
  return step_mark(ends_of_content_[found.which], std::move(before));
}

// The held text begins with a mark, behind `before`, which goes with it.
bool AnswerReader::step_mark(const std::string& mark, std::string before) {
  const size_t size = before.size() + mark.size();
  if (has_channels()) {
    held_.erase(0, mark == row_.channels.start ? 0 : size);
    state_ = State::kBetween;
    return true;
  }
  if (mark == call_mark_) {
    begin_calls(size, std::move(before) + mark);
    return true;
  }
  for (const Region& region : row_.thoughts) {
    if (!is_token(mark)) continue;
    if (trimmed(region.open) == mark) return open_thought(size, region);
    if (trimmed(region.close) != mark) continue;
    add_content(before.size());
    held_.erase(0, mark.size());  // the end of a thought that never began
    return true;
  }
  // Marks around content: as text only where content begins, and where it was opened.
  const bool opens = std::any_of(row_.contents.begin(), row_.contents.end(),
                                 [&](const Region& region) { return region.open == mark; });
  if (!is_token(mark) && (opens ? said_ : !opened_)) {
    add_content(size);
    return true;
  }
  held_.erase(0, size);
  opened_ = opens;
  skips_blanks_ = true;
  return true;
}

// A call without a mark, as the whole answer. False: more text is needed.
bool AnswerReader::begins_alone(size_t blanks) {
  const std::string_view text = std::string_view(held_).substr(blanks);
  if (text.empty()) return true;
  bool begins = false;
  if (!row_.calls.name_member.empty()) {
    begins = text[0] == '{';
  } else if (row_.calls.list) {
    begins = text[0] == '[';
  } else {
    const size_t size = name_size(text);
    const std::string_view name = text.substr(0, size);
    if (size == text.size() && !over_) {
      const bool possible =
          std::any_of(reading_->functions.begin(), reading_->functions.end(),
                      [&](const CallableFunction& one) { return one.name.starts_with(name); });
      if (possible) return false;
    }
    const size_t arguments = size + leading_blanks(text.substr(size));
    begins = find_function(reading_->functions, name) != nullptr;
    if (begins && arguments == text.size() && !over_) return false;
    begins = begins && arguments < text.size() && text[arguments] == '{';
  }
  if (begins) begin_calls(blanks, held_.substr(0, blanks));
  return true;
}

// --- calls ---

// `begun` becomes content again if no call follows.
void AnswerReader::begin_calls(size_t taken, std::string begun) {
  held_.erase(0, taken);
  calls_.reader.emplace(row_.calls, reading_->functions, std::move(begun), calls_.count);
  state_ = State::kCalls;
}

void AnswerReader::give_back(std::string text) {
  if (text.empty()) return;
  const size_t size = text.size();
  held_.insert(0, text);
  if (state_ == State::kThought) {
    add_thought(size);
  } else {
    add_content(size);
  }
}

bool AnswerReader::step_calls() {
  std::vector<AnswerPiece> pieces;
  const CallReader::Progress progress = calls_.reader->read(held_, over_, pieces);
  pass_calls(std::move(pieces));
  if (progress == CallReader::Progress::kMore) return false;
  const bool none = calls_.reader->calls() == calls_.count;
  calls_.count = calls_.reader->calls();
  const bool back = std::exchange(calls_.in_thought, false) && none;
  state_ = back ? State::kThought : State::kContent;
  skips_blanks_ = !none;
  const std::string given_back = calls_.reader->given_back();
  calls_.reader.reset();
  give_back(given_back);
  return !held_.empty();
}

}  // namespace fasa::text
