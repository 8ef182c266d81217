// UTF-8: finds valid and invalid sequences, and replaces invalid ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fasa {

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

enum class SequenceKind : uint8_t {
  kWhole,  // a character
  kWrong,  // the longest invalid prefix: becomes one U+FFFD
  kCut,    // a character cut off by the end of the text
};

struct Utf8Sequence {
  SequenceKind kind;
  uint8_t bytes;
};

// Length of the character that begins with a byte, 0 if none does, and the bounds of its second
// byte; further ones are 0x80 to 0xbf.
struct Utf8Lead {
  uint8_t bytes;
  unsigned char low, high;
};
Utf8Lead utf8_lead(unsigned char byte);

// The sequence at `at` < text.size(): the longest that Unicode's table 3-7 allows.
Utf8Sequence utf8_sequence(std::string_view text, size_t at);

// Bytes of the character that begins with `lead`, in valid text.
constexpr size_t utf8_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// The character at `at` of a valid text.
char32_t code_point_at(std::string_view text, size_t at);
// Offset of the character before `end` > 0 of a valid text.
size_t character_before(std::string_view text, size_t end);
int64_t count_characters(std::string_view text);  // of a valid text
// The longest beginning of at most `max_bytes` that does not end within a character.
std::string_view cut_text(std::string_view text, size_t max_bytes);
void append_utf8(std::string& text, char32_t code_point);

// The text itself if valid, else a copy with U+FFFD for each invalid or cut sequence.
std::string valid_utf8(std::string_view text);
bool is_valid_utf8(std::string_view text);

// Unicode's White_Space.
bool is_white_space(char32_t code_point);

}  // namespace fasa
