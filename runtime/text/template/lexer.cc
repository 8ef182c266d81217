#include "runtime/text/template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "runtime/base/utf8.h"
#include "runtime/text/template/functions/unicode.h"

namespace fasa::jinja {
namespace {

// Longest first.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_name_byte(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         byte == '_' || static_cast<unsigned char>(byte) >= 0x80;
}

constexpr std::string_view kShort = "abfnrtv\\'\"";
constexpr std::string_view kShortMeaning = "\a\b\f\n\r\t\v\\'\"";

// Reads `count` hexadecimal digits.
bool read_hex(std::string_view digits, size_t count, char32_t* code) {
  if (digits.size() < count) return false;
  uint32_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + count, value, 16);
  *code = value;
  return read.ec == std::errc() && read.ptr == digits.data() + count;
}

// Reads up to three octal digits; returns their number.
size_t read_octal(std::string_view digits, char32_t* code) {
  size_t count = 0;
  *code = 0;
  while (count < std::min<size_t>(3, digits.size()) && digits[count] >= '0' &&
         digits[count] <= '7') {
    *code = *code * 8 + static_cast<char32_t>(digits[count++] - '0');
  }
  return count;
}

// Python turns characters beyond ASCII into escapes before it reads escapes: a backslash before
// such a character stays, and the character becomes the text of its escape.
std::string escape_text(char32_t character) {
  const auto code = static_cast<uint32_t>(character);
  return code < 0x100     ? fmt::format("x{:02x}", code)
         : code < 0x10000 ? fmt::format("u{:04x}", code)
                          : fmt::format("U{:08x}", code);
}

bool is_character(char32_t code) { return code < 0x110000 && !(code >= 0xd800 && code < 0xe000); }

// Decodes a literal (without its quotes) by Python's rules. Returns null, or an error text.
const char* unescape(std::string_view literal, std::string* text) {
  for (size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\') {
      *text += literal[at++];
      continue;
    }
    const char kind = literal[at + 1];
    const std::string_view rest = literal.substr(at + 2);
    if (const size_t meaning = kShort.find(kind); meaning != std::string_view::npos) {
      *text += kShortMeaning[meaning];
      at += 2;
    } else if (kind == '\n') {
      at += 2;
    } else if (kind == 'x' || kind == 'u' || kind == 'U') {
      const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
      char32_t code = 0;
      if (!read_hex(rest, digits, &code)) return "an escape has too few hexadecimal digits";
      if (!is_character(code)) return "an escape is not a valid character";
      append_utf8(*text, code);
      at += 2 + digits;
    } else if (kind >= '0' && kind <= '7') {
      char32_t code = 0;
      at += 1 + read_octal(literal.substr(at + 1), &code);
      append_utf8(*text, code);
    } else if (kind == 'N') {
      return "\\N{name} escapes are not supported";
    } else if (static_cast<unsigned char>(kind) >= 0x80) {
      const Character character = character_at(literal, at + 1);
      *text += '\\' + escape_text(character.code);
      at += 1 + character.size;
    } else {
      *text += {'\\', kind};
      at += 2;
    }
  }
  return nullptr;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_data();
    add(TokenKind::kEnd, at_, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t at, const std::string& message) const {
    throw SyntaxFailure{static_cast<uint32_t>(at), message};
  }
  void add(TokenKind kind, size_t at, std::string_view text) {
    tokens_.push_back({kind, static_cast<uint32_t>(at), std::string(text)});
  }
  char byte(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }
  bool follows(size_t at, std::string_view text) const {
    return source_.substr(std::min(at, source_.size())).starts_with(text);
  }

  size_t skip_space(size_t at) const {
    while (at < source_.size() && is_space(character_at(source_, at).code)) {
      at += character_at(source_, at).size;
    }
    return at;
  }

  // Reads text up to the next tag, and that tag.
  void read_data() {
    size_t tag = at_;
    while (tag < source_.size() &&
           !(source_[tag] == '{' &&
             (byte(tag + 1) == '{' || byte(tag + 1) == '%' || byte(tag + 1) == '#'))) {
      ++tag;
    }
    if (tag == source_.size()) {
      add(TokenKind::kData, at_, source_.substr(at_));
      at_ = tag;
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = byte(tag + 2);
    const bool signed_tag = sign == '-' || sign == '+';
    add_data(tag, signed_tag ? sign : '\0', kind == '{');
    at_ = tag + (signed_tag ? 3 : 2);
    line_starts_ = false;
    if (kind == '#') return skip_comment(tag);
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, tag, "");
    read_tag(tag, kind == '{');
  }

  void add_data(size_t tag, char sign, bool variable) {
    std::string_view text = source_.substr(at_, tag - at_);
    if (sign == '-') {
      text = text.substr(0, strip(text, nullptr, {.left = false}).second);
    } else if (sign != '+' && !variable) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      const bool blank = strip(text.substr(line), nullptr, {}).first == text.size() - line;
      if ((line > 0 || line_starts_) && blank) text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenKind::kData, at_, text);
  }

  // Continues after the end of a tag at `end`; its sign decides which white space is removed.
  void leave(size_t end, char sign, bool variable) {
    at_ = end + 2;
    if (sign == '-') {
      at_ = skip_space(at_);
    } else if (sign != '+' && !variable && byte(at_) == '\n') {
      ++at_;
    }
    line_starts_ = source_[at_ - 1] == '\n';
  }

  void skip_comment(size_t tag) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) fail(tag, "the comment is not closed");
    leave(end, end > at_ ? source_[end - 1] : '\0', false);
  }

  // True if the tag ends here.
  bool read_end(bool variable) {
    const std::string_view mark = variable ? "}}" : "%}";
    const char sign = byte(at_);
    const bool is_signed = sign == '-' || (sign == '+' && !variable);
    const size_t end = at_ + (is_signed ? 1 : 0);
    if (!brackets_.empty() || !follows(end, mark)) return false;
    add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, at_, "");
    leave(end, is_signed ? sign : '\0', variable);
    return true;
  }

  void read_tag(size_t tag, bool variable) {
    brackets_.clear();
    while (at_ < source_.size()) {
      at_ = skip_space(at_);
      if (read_end(variable)) return;
      if (at_ < source_.size()) read_token();
    }
    fail(tag, "the tag is not closed");
  }

  void read_token() {
    const char first = source_[at_];
    if (is_digit(first)) {
      read_number();
    } else if (is_name_byte(first)) {
      const size_t begin = at_;
      while (at_ < source_.size() && is_name_byte(source_[at_])) ++at_;
      add(TokenKind::kName, begin, source_.substr(begin, at_ - begin));
    } else if (first == '"' || first == '\'') {
      read_text(first);
    } else {
      read_operator();
    }
  }

  // Digits with single underscores between them.
  size_t skip_digits(size_t at) const {
    while (is_digit(byte(at)) || (byte(at) == '_' && is_digit(byte(at + 1)))) ++at;
    return at;
  }

  void read_number() {
    const size_t begin = at_;
    const char base = static_cast<char>(byte(at_ + 1) | 0x20);
    if (source_[at_] == '0' && (base == 'x' || base == 'o' || base == 'b')) {
      fail(at_, "only decimal numbers are supported");
    }
    size_t end = skip_digits(at_);
    TokenKind kind = TokenKind::kInteger;
    if (byte(end) == '.' && is_digit(byte(end + 1)) && byte(begin - 1) != '.') {
      kind = TokenKind::kFloat;
      end = skip_digits(end + 1);
    }
    if ((byte(end) | 0x20) == 'e' && byte(begin - 1) != '.') {
      const size_t digits = end + (byte(end + 1) == '+' || byte(end + 1) == '-' ? 2 : 1);
      if (is_digit(byte(digits))) {
        kind = TokenKind::kFloat;
        end = skip_digits(digits);
      }
    }
    std::string text(source_.substr(begin, end - begin));
    std::erase(text, '_');
    if (kind == TokenKind::kInteger && text.size() > 1 && text[0] == '0' &&
        text.find_first_not_of('0') != std::string::npos) {
      fail(begin, "a number may not begin with 0");
    }
    add(kind, begin, text);
    at_ = end;
  }

  void read_text(char quote) {
    const size_t begin = at_;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(begin, "the string has no closing quote");
    std::string text;
    if (const char* wrong = unescape(source_.substr(begin + 1, end - begin - 1), &text)) {
      fail(begin, wrong);
    }
    add(TokenKind::kText, begin, text);
    at_ = end + 1;
  }

  void read_operator() {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](std::string_view text) { return follows(at_, text); });
    if (found == std::end(kOperators)) {
      const size_t size = character_at(source_, at_).size;
      fail(at_, fmt::format("\"{}\" is not expected here", source_.substr(at_, size)));
    }
    balance(found->front());
    add(TokenKind::kOperator, at_, *found);
    at_ += found->size();
  }

  void balance(char bracket) {
    if (bracket == '(' || bracket == '[' || bracket == '{') {
      brackets_.push_back(bracket == '(' ? ')' : bracket == '[' ? ']' : '}');
    } else if (bracket == ')' || bracket == ']' || bracket == '}') {
      if (brackets_.empty() || brackets_.back() != bracket) {
        fail(at_, fmt::format("\"{}\" closes nothing", bracket));
      }
      brackets_.pop_back();
    }
  }

  std::string_view source_;
  size_t at_ = 0;
  bool line_starts_ = true;  // what was read last ends a line
  std::string brackets_;     // open brackets
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalize_lines(std::string_view source) {
  std::string lines;
  lines.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    lines += source[i] == '\r' ? '\n' : source[i];
  }
  if (!lines.empty() && lines.back() == '\n') lines.pop_back();
  return lines;
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace fasa::jinja
