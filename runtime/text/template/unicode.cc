#include "runtime/text/template/unicode.h"

#include <utf8proc.h>

#include "runtime/text/template/special_case.h"

namespace fasa::jinja {
namespace {

constexpr char32_t kSigma = 0x3a3;
constexpr char32_t kFinalSigma = 0x3c2;
constexpr char32_t kDottedI = 0x130;

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

bool is_cased(char32_t character) {
  const auto kind = category(character);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT;
}

// Whether the character, between letters, does not end a word.
bool is_case_ignorable(char32_t character) {
  switch (category(character)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::u32string_view(U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52")
                 .find(character) != std::u32string_view::npos;
  }
}

// Whether a capital sigma at `offset` ends a word.
bool ends_word(std::string_view text, size_t offset) {
  bool letter_before = false;
  for (size_t at = offset; at > 0 && !letter_before;) {
    at = character_before(text, at);
    const char32_t before = character_at(text, at).code;
    if (is_case_ignorable(before)) continue;
    if (!is_cased(before)) return false;
    letter_before = true;
  }
  if (!letter_before) return false;
  for (size_t at = offset + character_at(text, offset).size; at < text.size();) {
    const Character after = character_at(text, at);
    if (!is_case_ignorable(after.code)) return !is_cased(after.code);
    at += after.size;
  }
  return true;
}

void append_all(std::string* out, std::u32string_view characters) {
  for (const char32_t character : characters) append_utf8(*out, character);
}

void append_lower(std::string* out, std::string_view text, size_t offset, char32_t character) {
  if (character == kSigma && ends_word(text, offset)) {
    append_utf8(*out, kFinalSigma);
  } else if (character == kDottedI) {
    append_all(out, U"i\u0307");
  } else {
    const auto code = static_cast<utf8proc_int32_t>(character);
    append_utf8(*out, static_cast<char32_t>(utf8proc_tolower(code)));
  }
}

void append_upper(std::string* out, char32_t character) {
  if (const SpecialCase* special = find_special_case(character)) {
    append_all(out, special->upper);
  } else {
    const auto code = static_cast<utf8proc_int32_t>(character);
    append_utf8(*out, static_cast<char32_t>(utf8proc_toupper(code)));
  }
}

void append_title(std::string* out, char32_t character) {
  if (const SpecialCase* special = find_special_case(character)) {
    append_all(out, special->title);
  } else {
    const auto code = static_cast<utf8proc_int32_t>(character);
    append_utf8(*out, static_cast<char32_t>(utf8proc_totitle(code)));
  }
}

// `change(out, offset, character)` writes the replacement of each character, which keeps its
// origin.
template <class Change>
MarkedText map_characters(const MarkedText& text, const Change& change) {
  MarkedText mapped;
  std::string changed;
  size_t at = 0;
  for (const MarkedText::Run& run : text.runs()) {
    changed.clear();
    while (at < run.end) {
      const Character character = character_at(text.bytes(), at);
      change(&changed, at, character.code);
      at += character.size;
    }
    mapped.append(changed, run.origin);
  }
  return mapped;
}

}  // namespace

Character character_at(std::string_view text, size_t offset) {
  return {code_point_at(text, offset), utf8_bytes(text[offset])};
}

size_t offset_of_character(std::string_view text, size_t index) {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    at += character_at(text, at).size;
    --index;
  }
  return at;
}

bool is_space(char32_t character) {
  return (character >= 0x09 && character <= 0x0d) || (character >= 0x1c && character <= 0x20) ||
         character == 0x85 || character == 0xa0 || character == 0x1680 ||
         (character >= 0x2000 && character <= 0x200a) || character == 0x2028 ||
         character == 0x2029 || character == 0x202f || character == 0x205f || character == 0x3000;
}

bool is_printable(char32_t character) {
  if (character == ' ') return true;
  switch (category(character)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::pair<size_t, size_t> strip(std::string_view text, const std::string_view* characters,
                                Sides sides) {
  const auto goes = [&](size_t at) {
    const Character character = character_at(text, at);
    if (characters == nullptr) return is_space(character.code);
    // A substring search suffices: in UTF-8 a character's bytes only match at a character.
    return characters->find(text.substr(at, character.size)) != std::string_view::npos;
  };
  size_t begin = 0, end = text.size();
  while (sides.left && begin < end && goes(begin)) begin += character_at(text, begin).size;
  while (sides.right && begin < end && goes(character_before(text, end)))
    end = character_before(text, end);
  return {begin, end};
}

std::vector<std::pair<size_t, size_t>> split_lines(std::string_view text) {
  static constexpr std::u32string_view kEnds = U"\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029";
  std::vector<std::pair<size_t, size_t>> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    size_t next = at + character.size;
    if (kEnds.find(character.code) != std::u32string_view::npos) {
      lines.emplace_back(begin, at);
      if (character.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.emplace_back(begin, text.size());
  return lines;
}

MarkedText lower(const MarkedText& text) {
  return map_characters(text, [&](std::string* out, size_t offset, char32_t character) {
    append_lower(out, text.bytes(), offset, character);
  });
}

MarkedText upper(const MarkedText& text) {
  return map_characters(
      text, [](std::string* out, size_t, char32_t character) { append_upper(out, character); });
}

MarkedText title(const MarkedText& text) {
  bool in_word = false;
  return map_characters(text, [&](std::string* out, size_t offset, char32_t character) {
    if (in_word) {
      append_lower(out, text.bytes(), offset, character);
    } else {
      append_title(out, character);
    }
    in_word = is_cased(character);
  });
}

MarkedText capitalize(const MarkedText& text) {
  return map_characters(text, [&](std::string* out, size_t offset, char32_t character) {
    if (offset == 0) {
      append_title(out, character);
    } else {
      append_lower(out, text.bytes(), offset, character);
    }
  });
}

}  // namespace fasa::jinja
