#include "runtime/base/utf8.h"

#include <algorithm>

namespace fasa {
Utf8Lead utf8_lead(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte < 0xf0) {
    if (byte == 0xe0) return {3, 0xa0, 0xbf};
    if (byte == 0xed) return {3, 0x80, 0x9f};  // no surrogates
    return {3, 0x80, 0xbf};
  }
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

Utf8Sequence utf8_sequence(std::string_view text, size_t at) {
  const Utf8Lead lead = utf8_lead(static_cast<unsigned char>(text[at]));
  if (lead.bytes == 0) return {SequenceKind::kWrong, 1};
  for (uint8_t i = 1; i < lead.bytes; ++i) {
    if (at + i == text.size()) return {SequenceKind::kCut, i};
    const auto byte = static_cast<unsigned char>(text[at + i]);
    const bool fits =
        i == 1 ? byte >= lead.low && byte <= lead.high : continues_character(text[at + i]);
    if (!fits) return {SequenceKind::kWrong, i};
  }
  return {SequenceKind::kWhole, lead.bytes};
}

char32_t code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  switch (utf8_bytes(text[at])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3:
      return (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 |
             (byte(3) & 0x3f);
  }
}

size_t character_before(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && continues_character(text[end]));
  return end;
}

int64_t count_characters(std::string_view text) {
  return std::ssize(text) - std::ranges::count_if(text, continues_character);
}

std::string_view cut_text(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && continues_character(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes);
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xc0 | code_point >> 6);
    add(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    add(0xe0 | code_point >> 12);
    add(0x80 | (code_point >> 6 & 0x3f));
    add(0x80 | (code_point & 0x3f));
  } else {
    add(0xf0 | code_point >> 18);
    add(0x80 | (code_point >> 12 & 0x3f));
    add(0x80 | (code_point >> 6 & 0x3f));
    add(0x80 | (code_point & 0x3f));
  }
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence sequence = utf8_sequence(text, at);
    if (sequence.kind == SequenceKind::kWhole) {
      valid += text.substr(at, sequence.bytes);
    } else {
      valid += kReplacement;
    }
    at += sequence.bytes;
  }
  return valid;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence sequence = utf8_sequence(text, at);
    if (sequence.kind != SequenceKind::kWhole) return false;
    at += sequence.bytes;
  }
  return true;
}

bool is_white_space(char32_t c) {
  return c == 0x20 || (c >= 0x09 && c <= 0x0d) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

}  // namespace fasa
