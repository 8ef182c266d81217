#include "bindings/http/call_scanner.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace fasa::serve {
namespace {

constexpr size_t kMaxHead = 64 << 10;  // bytes before the name is known
constexpr size_t kMaxBrackets = 256;

bool is_blank(char byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

std::optional<std::string> unquoted(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  return json.is_string() ? std::optional(json.get<std::string>()) : std::nullopt;
}

bool is_arguments(const std::string& key) { return key == "arguments" || key == "parameters"; }

}  // namespace

CallScanner::State CallScanner::push(char byte) {
  if (state_ != State::kOpen) return state_;
  if (!named_ && raw_.size() >= kMaxHead) return state_ = State::kFailed;
  state_ = step(byte);
  if (state_ == State::kDone && !named_) state_ = State::kFailed;
  if (state_ != State::kFailed && !named_) raw_ += byte;
  return state_;
}

CallScanner::State CallScanner::step(char byte) {
  switch (place_) {
    case Place::kBegin:
      if (byte != '{') return State::kFailed;
      place_ = Place::kKey;
      return State::kOpen;
    case Place::kKey:
      if (is_blank(byte)) return State::kOpen;
      if (byte == '}' && key_.empty()) return State::kDone;
      if (byte != '"') return State::kFailed;
      key_ = "\"";
      place_ = Place::kInKey;
      return State::kOpen;
    case Place::kInKey:
      key_ += byte;
      if (byte != '"' || escaped_) {
        escaped_ = byte == '\\' && !escaped_;
        return State::kOpen;
      }
      key_ = unquoted(key_).value_or("");
      place_ = Place::kColon;
      return State::kOpen;
    case Place::kColon:
      if (is_blank(byte)) return State::kOpen;
      place_ = Place::kValue;
      return byte == ':' ? State::kOpen : State::kFailed;
    case Place::kValue:
      return is_blank(byte) ? State::kOpen : begin_value(byte);
    case Place::kInValue:
      return in_value(byte);
    case Place::kComma:
      if (is_blank(byte)) return State::kOpen;
      if (byte == '}') {
        if (named_ && !has_arguments_) arguments_ = "{}";
        return State::kDone;
      }
      place_ = Place::kKey;
      return byte == ',' ? State::kOpen : State::kFailed;
  }
  return State::kFailed;
}

CallScanner::State CallScanner::begin_value(char byte) {
  place_ = Place::kInValue;
  value_.clear();
  if (is_arguments(key_)) {
    if (has_arguments_) return State::kFailed;
    has_arguments_ = true;
    spelt_as_string_ = byte == '"';
    if (byte != '{' && byte != '"') return State::kFailed;
  }
  return in_value(byte);
}

void CallScanner::add_argument(char byte) {
  if (is_arguments(key_)) (spelt_as_string_ ? value_ : arguments_) += byte;
  if (!is_arguments(key_)) value_ += byte;
}

CallScanner::State CallScanner::in_value(char byte) {
  if (in_string_) {
    add_argument(byte);
    if (byte == '"' && !escaped_) {
      in_string_ = false;
      if (brackets_.empty()) return end_value();
    }
    escaped_ = byte == '\\' && !escaped_;
    return State::kOpen;
  }
  const bool closes = byte == '}' || byte == ']';
  if (brackets_.empty() && (closes || byte == ',' || is_blank(byte))) {  // ends a number or word
    const State state = end_value();
    return state == State::kOpen ? step(byte) : state;
  }
  add_argument(byte);
  if (byte == '"') in_string_ = true;
  if (byte == '{' || byte == '[') {
    if (brackets_.size() >= kMaxBrackets) return State::kFailed;
    brackets_ += byte;
  }
  if (closes) {
    if (brackets_.back() != (byte == '}' ? '{' : '[')) return State::kFailed;
    brackets_.pop_back();
    if (brackets_.empty()) return end_value();
  }
  return State::kOpen;
}

CallScanner::State CallScanner::end_value() {
  place_ = Place::kComma;
  if (key_ == "name") {
    const auto name = unquoted(value_);
    if (!name || named_ || std::find(names_->begin(), names_->end(), *name) == names_->end()) {
      return State::kFailed;
    }
    name_ = *name;
    named_ = true;
  } else if (is_arguments(key_) && spelt_as_string_) {
    const auto text = unquoted(value_);
    if (!text) return State::kFailed;
    arguments_ = *text;
  }
  return bare_ ? State::kDone : State::kOpen;
}

std::string CallScanner::take_arguments() { return named_ ? std::exchange(arguments_, "") : ""; }

}  // namespace fasa::serve
