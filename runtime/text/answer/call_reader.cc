#include "runtime/text/answer/call_reader.h"

#include <utility>

#include "runtime/text/answer/mark_codes.h"
#include "runtime/text/answer/mark_search.h"

namespace fasa::text {
namespace {

constexpr size_t kMaxName = 256;

}  // namespace

size_t name_size(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && !is_blank(text[size]) && !MarkCodes::is_code(text[size]) &&
         std::string_view("<>[]{}()\"',=").find(text[size]) == std::string_view::npos) {
    ++size;
  }
  return size;
}

CallReader::CallReader(const CallFormat& format, const std::vector<CallableFunction>& functions,
                       std::string begun, int first_call)
    : format_(format),
      functions_(functions),
      closing_(words_of(format.close)),
      raw_(std::move(begun)),
      calls_(first_call) {}

CallReader::Progress CallReader::read(std::string& text, bool over,
                                      std::vector<AnswerPiece>& pieces) {
  for (;;) {
    const Result result = step(text, over, pieces);
    if (result == Result::kGo) continue;
    if (result == Result::kMore && !over) return Progress::kMore;
    return Progress::kDone;
  }
}

CallReader::Result CallReader::step(std::string& text, bool over,
                                    std::vector<AnswerPiece>& pieces) {
  switch (step_) {
    case Step::kBegin:
      return begin(text);
    case Step::kOpen:
      return open(text, over);
    case Step::kHead:
      return head(text, over);
    case Step::kObject:
    case Step::kArguments:
      return arguments(text, over, pieces);
    case Step::kClose:
      return close(text, over, pieces);
    case Step::kNext:
      return next(text, over);
  }
  return Result::kFail;
}

void CallReader::take(std::string& text, size_t bytes) {
  if (!announced_) raw_ += text.substr(0, bytes);
  text.erase(0, bytes);
}

// JSON calls may be a list in any format.
CallReader::Result CallReader::begin(std::string& text) {
  take(text, leading_blanks(text));
  if (text.empty()) return Result::kMore;
  listed_ = text[0] == '[' && (in_object() || format_.list);
  if (listed_) take(text, 1);
  step_ = Step::kOpen;
  return Result::kGo;
}

CallReader::Result CallReader::open(std::string& text, bool over) {
  take(text, leading_blanks(text));
  if (text.empty()) return Result::kMore;
  if (!format_.section_open.empty() && !format_.open.empty()) {
    const MarkMatch match = match_mark(text, format_.open);
    if (match.open(over)) return Result::kMore;
    if (!match.yes()) return Result::kFail;
    take(text, match.size);
  }
  closed_ = 0;
  arguments_.reset();
  if (in_object()) {
    object_.emplace(format_, functions_);
    step_ = Step::kObject;
  } else {
    step_ = Step::kHead;
  }
  return Result::kGo;
}

// A bare name, with what stands around it.
CallReader::Result CallReader::head(std::string& text, bool over) {
  const MarkMatch prefix = match_mark(text, format_.name_open);
  if (prefix.open(over)) return Result::kMore;
  if (!prefix.yes()) return Result::kFail;
  const size_t begin = prefix.size + leading_blanks(std::string_view(text).substr(prefix.size));
  const std::string_view behind = std::string_view(text).substr(begin);
  size_t size = name_size(behind);
  if (size == behind.size() && size < kMaxName && !over) return Result::kMore;
  const CallableFunction* const function = find_function(functions_, behind.substr(0, size));
  if (function == nullptr) return Result::kFail;
  if (!format_.id_open.empty()) {
    const MarkMatch id = match_mark(behind.substr(size), format_.id_open);
    if (id.open(over)) return Result::kMore;
    if (id.yes()) {
      const size_t letters = name_size(behind.substr(size + id.size));
      size += id.size + letters;
      if (size == behind.size() && letters < kMaxName && !over) return Result::kMore;
    }
  }
  const MarkMatch suffix = match_mark(behind.substr(size), format_.name_close);
  if (suffix.open(over)) return Result::kMore;
  const size_t blanks = leading_blanks(behind.substr(size));
  if (!suffix.yes() && behind.substr(size + blanks, 1) != "{") return Result::kFail;
  take(text, begin + size + (suffix.yes() ? suffix.size : blanks));
  function_ = function;
  arguments_ = make_argument_reader(format_, *function);
  step_ = Step::kArguments;
  return Result::kGo;
}

void CallReader::announce(std::vector<AnswerPiece>& pieces) {
  announced_ = true;
  raw_.clear();
  const std::string& name = object_ ? object_->name() : function_->name;
  pieces.push_back({AnswerPiece::Kind::kCallBegin, name, calls_++});
}

CallReader::Result CallReader::arguments(std::string& text, bool over,
                                         std::vector<AnswerPiece>& pieces) {
  const std::string before = announced_ ? "" : text;
  const ArgumentReader::Progress progress =
      object_ ? object_->read(text) : arguments_->read(text, over);
  if (!announced_) raw_ += before.substr(0, before.size() - text.size());
  const bool done = progress == ArgumentReader::Progress::kDone;
  const bool whole = object_ ? object_->complete() : done;
  // Tags without any parameter count once the closing mark is there.
  const bool known = object_ ? object_->named() : arguments_->begun();
  if (!announced_ && known) {
    std::string first = object_ ? object_->take() : "";
    // Arguments behind a name: the call is one when they have begun.
    if (object_ && first.empty() && progress == ArgumentReader::Progress::kMore)
      return Result::kMore;
    if (object_ && first.empty()) return Result::kFail;
    announce(pieces);
    if (!first.empty()) {
      pieces.push_back({AnswerPiece::Kind::kCallArguments, std::move(first), calls_ - 1, whole});
    }
  }
  if (announced_) {
    std::string json = object_ ? object_->take() : arguments_->take();
    if (!json.empty()) {
      pieces.push_back({AnswerPiece::Kind::kCallArguments, std::move(json), calls_ - 1, whole});
    }
  }
  if (progress == ArgumentReader::Progress::kMore) return Result::kMore;
  if (!done) return Result::kFail;
  step_ = Step::kClose;
  return Result::kGo;
}

// The last mark may stand alone: "</tool_call>" without "</function>".
CallReader::Result CallReader::close(std::string& text, bool over,
                                     std::vector<AnswerPiece>& pieces) {
  for (size_t mark = closed_; mark < closing_.size(); ++mark) {
    const MarkMatch match = match_mark(text, closing_[mark]);
    if (match.open(over)) return Result::kMore;
    // An answer that was cut within the mark has no part of it.
    if (announced_ && match.kind == MarkMatch::Kind::kOpen) take(text, text.size());
    if (!match.yes()) continue;
    take(text, match.size);
    closed_ = mark + 1;
  }
  if (!announced_) {  // a call without parameters
    if (closed_ == 0) return Result::kFail;
    announce(pieces);
    pieces.push_back({AnswerPiece::Kind::kCallArguments, arguments_->take(), calls_ - 1, true});
  }
  announced_ = false;
  object_.reset();
  step_ = Step::kNext;
  return Result::kGo;
}

// What follows a call: another, or the end of all.
CallReader::Result CallReader::next(std::string& text, bool over) {
  const bool section = !format_.section_open.empty();
  const bool separated = listed_ || format_.alone;
  const bool ends = closed_ > 0 && !section && !listed_;
  if (ends || (!section && !in_object() && !separated)) return Result::kStop;
  const size_t blanks = leading_blanks(text);
  const std::string_view behind = std::string_view(text).substr(blanks);
  if (behind.empty()) return Result::kMore;
  if (listed_ && behind[0] == ']') return end_with(text, blanks + 1, Result::kGo);
  const std::string& last = section || closing_.empty() ? format_.section_close : closing_.back();
  if (!last.empty()) {
    const MarkMatch match = match_mark(behind, last);
    if (match.open(over)) return Result::kMore;
    if (match.kind != MarkMatch::Kind::kNo) {
      return end_with(text, blanks + match.size, Result::kStop);
    }
  }
  if (separated && (behind[0] == ',' || behind[0] == ';')) {
    take(text, blanks + 1);
    return Result::kGo;
  }
  bool follows = in_object() && behind[0] == '{';
  if (section && !format_.open.empty()) {
    const MarkMatch match = match_mark(behind, format_.open);
    if (match.open(over)) return Result::kMore;
    follows = match.yes();
  } else if (!in_object()) {
    follows = name_size(behind) > 0 && (section || listed_);
  }
  if (!follows) return Result::kStop;
  step_ = Step::kOpen;
  return Result::kGo;
}

// Drops marks that end a list or all calls.
CallReader::Result CallReader::end_with(std::string& text, size_t bytes, Result result) {
  text.erase(0, bytes);
  raw_.clear();
  listed_ = false;
  return result;
}

}  // namespace fasa::text
