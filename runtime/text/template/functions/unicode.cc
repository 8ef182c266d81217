#include "runtime/text/template/functions/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace fasa::jinja {
namespace {

constexpr char32_t kSigma = 0x3a3;
constexpr char32_t kFinalSigma = 0x3c2;
constexpr char32_t kDottedI = 0x130;

// Characters whose upper or title case has several characters.
struct SpecialCase {
  char32_t character;
  std::u32string_view upper;
  std::u32string_view title;
};

// The unconditional entries of Unicode's SpecialCasing.txt, in order.
constexpr SpecialCase kSpecialCases[] = {
    {0x00df, U"SS", U"Ss"},
    {0x0149, U"\u02bcN", U"\u02bcN"},
    {0x01f0, U"J\u030c", U"J\u030c"},
    {0x0390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x03b0, U"\u03a5\u0308\u0301", U"\u03a5\u0308\u0301"},
    {0x0587, U"\u0535\u0552", U"\u0535\u0582"},
    {0x1e96, U"H\u0331", U"H\u0331"},
    {0x1e97, U"T\u0308", U"T\u0308"},
    {0x1e98, U"W\u030a", U"W\u030a"},
    {0x1e99, U"Y\u030a", U"Y\u030a"},
    {0x1e9a, U"A\u02be", U"A\u02be"},
    {0x1f50, U"\u03a5\u0313", U"\u03a5\u0313"},
    {0x1f52, U"\u03a5\u0313\u0300", U"\u03a5\u0313\u0300"},
    {0x1f54, U"\u03a5\u0313\u0301", U"\u03a5\u0313\u0301"},
    {0x1f56, U"\u03a5\u0313\u0342", U"\u03a5\u0313\u0342"},
    {0x1f80, U"\u1f08\u0399", U"\u1f88"},
    {0x1f81, U"\u1f09\u0399", U"\u1f89"},
    {0x1f82, U"\u1f0a\u0399", U"\u1f8a"},
    {0x1f83, U"\u1f0b\u0399", U"\u1f8b"},
    {0x1f84, U"\u1f0c\u0399", U"\u1f8c"},
    {0x1f85, U"\u1f0d\u0399", U"\u1f8d"},
    {0x1f86, U"\u1f0e\u0399", U"\u1f8e"},
    {0x1f87, U"\u1f0f\u0399", U"\u1f8f"},
    {0x1f88, U"\u1f08\u0399", U"\u1f88"},
    {0x1f89, U"\u1f09\u0399", U"\u1f89"},
    {0x1f8a, U"\u1f0a\u0399", U"\u1f8a"},
    {0x1f8b, U"\u1f0b\u0399", U"\u1f8b"},
    {0x1f8c, U"\u1f0c\u0399", U"\u1f8c"},
    {0x1f8d, U"\u1f0d\u0399", U"\u1f8d"},
    {0x1f8e, U"\u1f0e\u0399", U"\u1f8e"},
    {0x1f8f, U"\u1f0f\u0399", U"\u1f8f"},
    {0x1f90, U"\u1f28\u0399", U"\u1f98"},
    {0x1f91, U"\u1f29\u0399", U"\u1f99"},
    {0x1f92, U"\u1f2a\u0399", U"\u1f9a"},
    {0x1f93, U"\u1f2b\u0399", U"\u1f9b"},
    {0x1f94, U"\u1f2c\u0399", U"\u1f9c"},
    {0x1f95, U"\u1f2d\u0399", U"\u1f9d"},
    {0x1f96, U"\u1f2e\u0399", U"\u1f9e"},
    {0x1f97, U"\u1f2f\u0399", U"\u1f9f"},
    {0x1f98, U"\u1f28\u0399", U"\u1f98"},
    {0x1f99, U"\u1f29\u0399", U"\u1f99"},
    {0x1f9a, U"\u1f2a\u0399", U"\u1f9a"},
    {0x1f9b, U"\u1f2b\u0399", U"\u1f9b"},
    {0x1f9c, U"\u1f2c\u0399", U"\u1f9c"},
    {0x1f9d, U"\u1f2d\u0399", U"\u1f9d"},
    {0x1f9e, U"\u1f2e\u0399", U"\u1f9e"},
    {0x1f9f, U"\u1f2f\u0399", U"\u1f9f"},
    {0x1fa0, U"\u1f68\u0399", U"\u1fa8"},
    {0x1fa1, U"\u1f69\u0399", U"\u1fa9"},
    {0x1fa2, U"\u1f6a\u0399", U"\u1faa"},
    {0x1fa3, U"\u1f6b\u0399", U"\u1fab"},
    {0x1fa4, U"\u1f6c\u0399", U"\u1fac"},
    {0x1fa5, U"\u1f6d\u0399", U"\u1fad"},
    {0x1fa6, U"\u1f6e\u0399", U"\u1fae"},
    {0x1fa7, U"\u1f6f\u0399", U"\u1faf"},
    {0x1fa8, U"\u1f68\u0399", U"\u1fa8"},
    {0x1fa9, U"\u1f69\u0399", U"\u1fa9"},
    {0x1faa, U"\u1f6a\u0399", U"\u1faa"},
    {0x1fab, U"\u1f6b\u0399", U"\u1fab"},
    {0x1fac, U"\u1f6c\u0399", U"\u1fac"},
    {0x1fad, U"\u1f6d\u0399", U"\u1fad"},
    {0x1fae, U"\u1f6e\u0399", U"\u1fae"},
    {0x1faf, U"\u1f6f\u0399", U"\u1faf"},
    {0x1fb2, U"\u1fba\u0399", U"\u1fba\u0345"},
    {0x1fb3, U"\u0391\u0399", U"\u1fbc"},
    {0x1fb4, U"\u0386\u0399", U"\u0386\u0345"},
    {0x1fb6, U"\u0391\u0342", U"\u0391\u0342"},
    {0x1fb7, U"\u0391\u0342\u0399", U"\u0391\u0342\u0345"},
    {0x1fbc, U"\u0391\u0399", U"\u1fbc"},
    {0x1fc2, U"\u1fca\u0399", U"\u1fca\u0345"},
    {0x1fc3, U"\u0397\u0399", U"\u1fcc"},
    {0x1fc4, U"\u0389\u0399", U"\u0389\u0345"},
    {0x1fc6, U"\u0397\u0342", U"\u0397\u0342"},
    {0x1fc7, U"\u0397\u0342\u0399", U"\u0397\u0342\u0345"},
    {0x1fcc, U"\u0397\u0399", U"\u1fcc"},
    {0x1fd2, U"\u0399\u0308\u0300", U"\u0399\u0308\u0300"},
    {0x1fd3, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x1fd6, U"\u0399\u0342", U"\u0399\u0342"},
    {0x1fd7, U"\u0399\u0308\u0342", U"\u0399\u0308\u0342"},
    {0x1fe2, U"\u03a5\u0308\u0300", U"\u03a5\u0308\u0300"},
    {0x1fe3, U"\u03a5\u0308\u0301", U"\u03a5\u0308\u0301"},
    {0x1fe4, U"\u03a1\u0313", U"\u03a1\u0313"},
    {0x1fe6, U"\u03a5\u0342", U"\u03a5\u0342"},
    {0x1fe7, U"\u03a5\u0308\u0342", U"\u03a5\u0308\u0342"},
    {0x1ff2, U"\u1ffa\u0399", U"\u1ffa\u0345"},
    {0x1ff3, U"\u03a9\u0399", U"\u1ffc"},
    {0x1ff4, U"\u038f\u0399", U"\u038f\u0345"},
    {0x1ff6, U"\u03a9\u0342", U"\u03a9\u0342"},
    {0x1ff7, U"\u03a9\u0342\u0399", U"\u03a9\u0342\u0345"},
    {0x1ffc, U"\u03a9\u0399", U"\u1ffc"},
    {0xfb00, U"FF", U"Ff"},
    {0xfb01, U"FI", U"Fi"},
    {0xfb02, U"FL", U"Fl"},
    {0xfb03, U"FFI", U"Ffi"},
    {0xfb04, U"FFL", U"Ffl"},
    {0xfb05, U"ST", U"St"},
    {0xfb06, U"ST", U"St"},
    {0xfb13, U"\u0544\u0546", U"\u0544\u0576"},
    {0xfb14, U"\u0544\u0535", U"\u0544\u0565"},
    {0xfb15, U"\u0544\u053b", U"\u0544\u056b"},
    {0xfb16, U"\u054e\u0546", U"\u054e\u0576"},
    {0xfb17, U"\u0544\u053d", U"\u0544\u056d"},
};

// Null for characters whose case is a single character.
const SpecialCase* find_special_case(char32_t character) {
  const auto* found = std::lower_bound(
      std::begin(kSpecialCases), std::end(kSpecialCases), character,
      [](const SpecialCase& entry, char32_t wanted) { return entry.character < wanted; });
  return found == std::end(kSpecialCases) || found->character != character ? nullptr : found;
}

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
