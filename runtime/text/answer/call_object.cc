#include "runtime/text/answer/call_object.h"

#include "runtime/text/answer/mark_search.h"

namespace fasa::text {
namespace {

using Progress = ArgumentReader::Progress;

}  // namespace

Progress CallObject::read(std::string& text) {
  State state = State::kOpen;
  size_t at = 0;
  while (at < text.size() && state == State::kOpen) {
    if (!named() && ++size_ > kMaxHead) {
      state = State::kFailed;
    } else {
      state = push(text[at]);
    }
    if (state != State::kFailed) ++at;
  }
  text.erase(0, at);
  if (state == State::kDone && !named()) state = State::kFailed;
  return state == State::kOpen   ? Progress::kMore
         : state == State::kDone ? Progress::kDone
                                 : Progress::kFailed;
}

CallObject::State CallObject::push(char byte) {
  const bool inside = place_ == Place::kInValue || (place_ == Place::kKey && !key_.empty());
  if (is_blank(byte) && !inside) return State::kOpen;
  switch (place_) {
    case Place::kBegin:
      place_ = Place::kKey;
      return byte == '{' ? State::kOpen : State::kFailed;
    case Place::kKey:
      if (byte == '}' && key_.empty()) break;
      return in_key(byte);
    case Place::kColon:
      place_ = Place::kValue;
      return byte == ':' ? State::kOpen : State::kFailed;
    case Place::kValue:
      return begin_value(byte);
    case Place::kInValue:
      return in_value(byte);
    case Place::kNext:
      if (byte == '}') break;
      place_ = Place::kKey;
      key_.clear();
      return byte == ',' ? State::kOpen : State::kFailed;
  }
  if (named() && !has_arguments_) json_ = "{}";
  complete_ = true;
  return State::kDone;
}

CallObject::State CallObject::in_key(char byte) {
  if (key_.empty()) {
    reader_ = ValueReader();
    if (byte != '"') return State::kFailed;
  }
  const ValueReader::State state = reader_.push(byte);
  key_ += reader_.take();
  if (state == ValueReader::State::kFailed) return State::kFailed;
  if (state != ValueReader::State::kDone) return State::kOpen;
  const auto json = nlohmann::json::parse(key_, nullptr, false);
  if (!json.is_string()) return State::kFailed;
  key_ = json.get<std::string>();
  if (key_.empty()) key_ = " ";  // a name of no member
  place_ = Place::kColon;
  return State::kOpen;
}

bool CallObject::is_arguments() const {
  return key_ == "arguments" || key_ == "parameters" || key_ == format_.arguments_member;
}

CallObject::State CallObject::begin_value(char byte) {
  reader_ = ValueReader();
  value_.clear();
  streams_ = is_arguments() && byte == '{';
  if (is_arguments()) {
    if (std::exchange(has_arguments_, true)) return State::kFailed;
    if (byte != '{' && byte != '"' && byte != 'n') return State::kFailed;
  }
  place_ = Place::kInValue;
  return in_value(byte);
}

CallObject::State CallObject::in_value(char byte) {
  const ValueReader::State state = reader_.push(byte);
  (streams_ ? json_ : value_) += reader_.take();
  if (state == ValueReader::State::kFailed) return State::kFailed;
  if (state == ValueReader::State::kOpen) return State::kOpen;
  const State ended = end_value();
  return state == ValueReader::State::kBefore && ended == State::kOpen ? push(byte) : ended;
}

CallObject::State CallObject::end_value() {
  place_ = Place::kNext;
  complete_ |= is_arguments();
  const auto text = [&]() -> std::string {
    const auto json = nlohmann::json::parse(value_, nullptr, false);
    return json.is_string() ? json.get<std::string>() : "";
  };
  if (key_ == format_.name_member) {
    if (named()) return State::kFailed;
    function_ = find_function(functions_, text());
    if (!named()) return State::kFailed;
  } else if (is_arguments() && !streams_) {
    if (value_ == "null") {
      json_ = "{}";
      return State::kOpen;
    }
    const std::string inner(without_blanks(text()));
    if (inner.empty()) {
      json_ = "{}";
    } else if (inner[0] != '{' || !read_value(inner, {}, json_)) {
      return State::kFailed;
    }
  }
  return State::kOpen;
}

}  // namespace fasa::text
