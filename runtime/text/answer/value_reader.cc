#include "runtime/text/answer/value_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "runtime/text/answer/mark_search.h"

namespace fasa::text {
namespace {

using State = ValueReader::State;

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

bool ends_word(char byte) {
  return is_blank(byte) || byte == ',' || byte == '}' || byte == ']' || byte == ')' || byte == ':';
}

// A character by its number, as JSON.
std::string json_escape(std::string_view hex) {
  uint32_t point = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), point, 16);
  if (point < 0x10000) return fmt::format("\\u{:04x}", point);
  point -= 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (point >> 10), 0xdc00 + (point & 0x3ff));
}

}  // namespace

// One byte of a text, escaped where JSON wants it.
void ValueReader::add_text(std::string_view bytes) {
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    if (byte == '"' || byte == '\\') {
      out_ += {'\\', byte};
    } else if (byte == '\n') {
      out_ += "\\n";
    } else if (byte == '\t') {
      out_ += "\\t";
    } else if (byte == '\r') {
      out_ += "\\r";
    } else if (code < 0x20) {
      out_ += fmt::format("\\u{:04x}", code);
    } else {
      out_ += byte;
    }
  }
}

State ValueReader::push(char byte) {
  switch (place_) {
    case Place::kText:
      return in_text(byte);
    case Place::kWord:
      if (!ends_word(byte)) {
        held_ += byte;
        return held_.size() > 400 ? State::kFailed : State::kOpen;
      }
      if (!end_word()) return State::kFailed;
      if (end_value() == State::kDone) return State::kBefore;
      return push(byte);
    case Place::kBareKey:
      return bare_key(byte);
    default:
      break;
  }
  if (is_blank(byte) && held_.empty()) {
    if (!brackets_.empty()) (comma_ ? blanks_ : out_) += byte;
    return State::kOpen;
  }
  switch (place_) {
    case Place::kColon:
      if (byte != ':') return State::kFailed;
      out_ += byte;
      place_ = Place::kValue;
      return State::kOpen;
    case Place::kFirst:  // behind an opening bracket, or a comma that may be too much
    case Place::kKey:
      if (held_.empty() && (byte == '}' || byte == ']')) return close(byte);
      if (comma_) out_ += "," + std::exchange(blanks_, {});
      comma_ = false;
      return brackets_.back() == '{' ? begin_text(byte, true) : begin_value(byte);
    case Place::kNext:
      return next_or_close(byte);
    default:
      return begin_value(byte);
  }
}

State ValueReader::begin_text(char byte, bool key) {
  const bool plain = byte == '"' || (byte == '\'' && dialect_.python_texts);
  if (plain && held_.empty()) {
    quote_ = byte;
  } else {
    held_ += byte;
    if (!dialect_.quote.starts_with(held_)) {
      if (!key || !dialect_.bare_keys) return State::kFailed;
      std::string name = std::exchange(held_, {});
      out_ += '"';
      place_ = Place::kBareKey;
      for (const char one : name) {
        if (const State state = bare_key(one); state != State::kOpen) return state;
      }
      return State::kOpen;
    }
    if (held_.size() < dialect_.quote.size()) return State::kOpen;
    held_.clear();
    quote_ = dialect_.quote;
  }
  key_ = key;
  out_ += '"';
  place_ = Place::kText;
  return State::kOpen;
}

State ValueReader::bare_key(char byte) {
  if (byte == ':') {
    out_ += "\": ";
    place_ = Place::kValue;
    return State::kOpen;
  }
  if (is_blank(byte) || byte == ',' || byte == '{' || byte == '}' || byte == '"') {
    return State::kFailed;
  }
  add_text({&byte, 1});
  return State::kOpen;
}

State ValueReader::begin_value(char byte) {
  if (!held_.empty()) return begin_text(byte, false);
  if (byte == '{' || byte == '[') {
    if (brackets_.size() >= kMaxDepth) return State::kFailed;
    brackets_ += byte;
    out_ += byte;
    place_ = Place::kFirst;
    return State::kOpen;
  }
  const bool word = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                    (byte >= 'A' && byte <= 'Z') || byte == '-' || byte == '+' || byte == '.';
  if (!word) return begin_text(byte, false);
  held_ = byte;
  place_ = Place::kWord;
  return State::kOpen;
}

bool ValueReader::end_word() {
  const std::string word = std::exchange(held_, {});
  for (const auto& [read, written] : {std::pair("true", "true"),
                                      {"false", "false"},
                                      {"null", "null"},
                                      {"True", "true"},
                                      {"False", "false"},
                                      {"None", "null"}}) {
    if (word != read) continue;
    out_ += written;
    return true;
  }
  const bool number = word.find_first_not_of("+-.eE0123456789") == std::string::npos &&
                      nlohmann::json::accept(word);
  if (number) out_ += word;
  return number;
}

State ValueReader::in_text(char byte) {
  if (!held_.empty() && held_[0] == '\\' && quote_.size() == 1) return escape(byte);
  if (quote_.size() > 1) {  // a mark as text: its bytes may be the text's own
    held_ += byte;
    while (!held_.empty() && !quote_.starts_with(held_)) {
      add_text({held_.data(), 1});
      held_.erase(0, 1);
    }
    if (held_ != quote_) return State::kOpen;
    held_.clear();
  } else if (byte == '\\' && (quote_ == "\"" || quote_ == "'")) {
    held_ = byte;
    return State::kOpen;
  } else if (byte != quote_[0]) {
    add_text({&byte, 1});
    return State::kOpen;
  }
  out_ += '"';
  if (!key_) return end_value();
  place_ = Place::kColon;
  return State::kOpen;
}

// JSON's escapes are kept; Python's others are written as JSON.
State ValueReader::escape(char byte) {
  held_ += byte;
  const std::string_view letters = std::string_view(held_).substr(1);
  const char kind = letters[0];
  const size_t digits = kind == 'u'                            ? 4
                        : kind == 'x' && dialect_.python_texts ? 2
                        : kind == 'U' && dialect_.python_texts ? 8
                                                               : 0;
  if (digits > 0) {
    if (!is_hex(letters.substr(1))) return State::kFailed;
    if (letters.size() <= digits) return State::kOpen;
    if (kind == 'U' && letters.substr(1, 4) > "0010") return State::kFailed;  // beyond Unicode
    out_ += kind == 'u' ? held_ : json_escape(letters.substr(1));
  } else if (std::string_view("\"\\/bfnrt").find(kind) != std::string_view::npos) {
    out_ += held_;
  } else if (kind == '\'') {
    out_ += kind;
  } else {  // a backslash that escapes nothing is itself, as in Python
    add_text(held_);
  }
  held_.clear();
  return State::kOpen;
}

State ValueReader::next_or_close(char byte) {
  if (byte != ',') return close(byte);
  comma_ = true;
  place_ = brackets_.back() == '{' ? Place::kKey : Place::kFirst;
  return State::kOpen;
}

State ValueReader::close(char byte) {
  if ((byte != '}' && byte != ']') || brackets_.back() != (byte == '}' ? '{' : '[')) {
    return State::kFailed;
  }
  out_ += std::exchange(blanks_, {}) + byte;
  comma_ = false;
  brackets_.pop_back();
  return end_value();
}

State ValueReader::end_value() {
  place_ = Place::kNext;
  return brackets_.empty() ? State::kDone : State::kOpen;
}

bool ValueReader::finish() { return place_ == Place::kWord && brackets_.empty() && end_word(); }

bool read_value(std::string_view text, const ValueDialect& dialect, std::string& json) {
  ValueReader reader(dialect);
  text.remove_prefix(leading_blanks(text));
  State state = State::kOpen;
  size_t at = 0;
  while (at < text.size() && state == State::kOpen) state = reader.push(text[at++]);
  if (state == State::kBefore) --at;
  const bool whole = state == State::kDone || state == State::kBefore ||
                     (state == State::kOpen && reader.finish());
  if (!whole || at + leading_blanks(text.substr(at)) != text.size()) return false;
  json = reader.take();
  return true;
}

}  // namespace fasa::text
