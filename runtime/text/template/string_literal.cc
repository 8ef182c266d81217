#include "runtime/text/template/string_literal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/base/utf8.h"
#include "runtime/text/template/unicode.h"

namespace fasa::jinja {
namespace {

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

}  // namespace

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

}  // namespace fasa::jinja
