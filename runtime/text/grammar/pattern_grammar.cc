#include "runtime/text/grammar/pattern_grammar.h"

#include <fmt/format.h>

#include <bitset>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/utf8.h"
#include "runtime/text/grammar/schema_error.h"

namespace fasa::text {
namespace {

using Rule = ByteGrammar::Rule;
using Symbols = std::vector<ByteGrammar::Symbol>;

constexpr int kMaxRepeats = 1000;
constexpr int kMaxGroups = 64;  // inside one another

// A set of characters: those of ASCII one by one, all others together.
struct CharacterSet {
  std::bitset<128> ascii;
  bool others = false;
  bool some_others = false;  // some of the others belong to it: its opposite has none

  CharacterSet opposite() const {
    return {.ascii = ~ascii, .others = !others && !some_others, .some_others = false};
  }
  void add(const CharacterSet& set) {
    ascii |= set.ascii;
    others |= set.others;
    some_others |= set.some_others;
  }
  void add(unsigned char first, unsigned char last) {
    for (int c = first; c <= last; ++c) ascii.set(static_cast<size_t>(c));
  }
};

std::optional<CharacterSet> escaped_set(char letter) {
  CharacterSet set;
  switch (letter) {
    case 'd':
    case 'D':
      set.add('0', '9');
      break;
    case 'w':
    case 'W':
      set.add('0', '9');
      set.add('A', 'Z');
      set.add('a', 'z');
      set.add('_', '_');
      break;
    case 's':
    case 'S':
      set.add('\t', '\r');
      set.add(' ', ' ');
      set.some_others = true;
      break;
    default:
      return std::nullopt;
  }
  return letter >= 'a' ? set : set.opposite();
}

class PatternReader {
 public:
  PatternReader(ByteGrammar& grammar, std::string_view pattern, const std::string& place)
      : grammar_(grammar), json_(grammar), pattern_(pattern), place_(place) {}

  Rule read() {
    const Rule rule = grammar_.new_rule();
    do {
      Symbols symbols = {grammar_.byte('"')};
      if (!take('^')) symbols.push_back(anything());
      const Part part = sequence();
      symbols.push_back(part.rule);
      if (!take('$')) symbols.push_back(anything());
      symbols.push_back(grammar_.byte('"'));
      grammar_.add(rule, symbols);
    } while (take('|'));
    if (!pattern_.empty()) fail("\"" + std::string(1, pattern_[0]) + "\" has no beginning");
    return rule;
  }

 private:
  struct Part {
    Rule rule;
    bool may_be_empty;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw SchemaError(place_, what +
                                  ", which this server does not support in patterns; allowed: "
                                  "characters, classes, groups, alternatives, repetitions, and "
                                  "^ and $ at the ends");
  }
  bool next_is(char c) const { return !pattern_.empty() && pattern_[0] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    pattern_.remove_prefix(1);
    return true;
  }
  char take() {
    if (pattern_.empty()) fail("the pattern ends too early");
    const char c = pattern_[0];
    pattern_.remove_prefix(1);
    return c;
  }

  Rule anything() {
    if (!anything_) anything_ = star(json_.string_character());
    return *anything_;
  }
  Rule star(Rule one) {
    const Rule rule = grammar_.new_rule();
    grammar_.add(rule, {});
    grammar_.add(rule, {one, rule});
    return rule;
  }

  Part alternatives() {
    const Rule rule = grammar_.new_rule();
    bool may_be_empty = false;
    do {
      const Part part = sequence();
      grammar_.add(rule, {part.rule});
      may_be_empty |= part.may_be_empty;
    } while (take('|'));
    return {rule, may_be_empty};
  }

  Part sequence() {
    Symbols symbols;
    bool may_be_empty = true;
    while (!pattern_.empty() && !next_is('|') && !next_is(')') && !next_is('$')) {
      const Part part = repeated(atom());
      symbols.push_back(part.rule);
      may_be_empty &= part.may_be_empty;
    }
    const Rule rule = grammar_.new_rule();
    grammar_.add(rule, symbols);
    return {rule, may_be_empty};
  }

  Part atom() {
    const char c = take();
    switch (c) {
      case '(':
        return group();
      case '[':
        return {of_set(character_class()), false};
      case '.': {
        CharacterSet line_ends;
        line_ends.ascii.set('\n').set('\r');
        line_ends.some_others = false;
        return {of_set(line_ends.opposite()), false};
      }
      case '\\':
        return {escaped(), false};
      case '^':
      case '*':
      case '+':
      case '?':
      case '{':
        fail(fmt::format("\"{}\" stands where a character is expected", c));
      default:
        return {literal(c), false};
    }
  }

  Part group() {
    if (take('?') && !take(':')) fail("a group begins with \"(?\"");
    if (++groups_ > kMaxGroups) fail(fmt::format("more than {} groups are nested", kMaxGroups));
    const Part part = alternatives();
    --groups_;
    if (!take(')')) fail("a group does not end");
    return part;
  }

  // Bytes of a character that is not in ASCII follow its first one.
  Rule literal(char first) {
    if (static_cast<unsigned char>(first) < 0x80) return of_character(first);
    std::string text(1, first);
    while (!pattern_.empty() && continues_character(pattern_[0])) {
      text += take();
    }
    return json_.literal(text);
  }

  Rule of_character(char c) {
    CharacterSet set;
    set.ascii.set(static_cast<size_t>(c));
    return of_set(set);
  }

  // The character that an escape stands for; nothing for classes.
  char escaped_character(char letter) const {
    switch (letter) {
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      default: {
        const bool sign = letter > ' ' && letter < 0x7f && !std::isalnum(letter);
        if (!sign) fail(fmt::format("the escape \"\\{}\"", letter));
        return letter;
      }
    }
  }

  Rule escaped() {
    const char letter = take();
    if (const auto set = escaped_set(letter)) return of_set(*set);
    return of_character(escaped_character(letter));
  }

  CharacterSet character_class() {
    const bool negated = take('^');
    CharacterSet set;
    while (!take(']')) {
      const std::optional<CharacterSet> inner = class_escape();
      if (inner) {
        set.add(*inner);
        continue;
      }
      const char first = class_character();
      const bool is_range = pattern_.size() > 1 && pattern_[0] == '-' && pattern_[1] != ']';
      if (!is_range) {
        set.ascii.set(static_cast<size_t>(first));
        continue;
      }
      take('-');
      if (class_escape()) fail("a range ends with a class");
      const char last = class_character();
      if (last < first) fail("a range whose end lies before its beginning");
      set.add(static_cast<unsigned char>(first), static_cast<unsigned char>(last));
    }
    return negated ? set.opposite() : set;
  }

  std::optional<CharacterSet> class_escape() {
    if (pattern_.size() < 2 || pattern_[0] != '\\') return std::nullopt;
    const auto set = escaped_set(pattern_[1]);
    if (set) pattern_.remove_prefix(2);
    return set;
  }

  char class_character() {
    const char c = take();
    if (static_cast<unsigned char>(c) >= 0x80) fail("a class has a character beyond ASCII");
    return c == '\\' ? escaped_character(take()) : c;
  }

  // A string spells quotes, backslashes and controls as escapes.
  Rule of_set(const CharacterSet& set) {
    const Rule rule = grammar_.new_rule();
    ByteSet plain;
    for (size_t c = 0x20; c < 0x80; ++c) plain.set(c, set.ascii[c] && c != '"' && c != '\\');
    if (plain.any()) grammar_.add(rule, {grammar_.byte_of(plain)});
    for (size_t c = 0; c < 0x80; ++c) {
      const bool escaped = c < 0x20 || c == '"' || c == '\\';
      if (!escaped || !set.ascii[c]) continue;
      const std::string text = nlohmann::json(std::string(1, static_cast<char>(c))).dump();
      grammar_.add(rule, grammar_.literal(text.substr(1, text.size() - 2)));
    }
    if (set.others) grammar_.add(rule, {json_.wide_character()});
    return rule;
  }

  struct Range {
    int least;
    int most;  // kEndless: any number
  };
  static constexpr int kEndless = -1;

  Part repeated(Part part) {
    const std::optional<Range> range = repetition();
    if (!range) return part;
    const int least = range->least, most = range->most;
    if (part.may_be_empty) fail("a repetition of what may be empty");
    take('?');  // as few as possible: the same texts
    if (next_is('*') || next_is('+') || next_is('{')) fail("a repetition of a repetition");
    Rule rest = most == kEndless ? star(part.rule) : json_.literal("");
    // From the last one backwards.
    for (int count = 1; count <= (most == kEndless ? least : most); ++count) {
      const Rule longer = grammar_.new_rule();
      if (most - count >= least) grammar_.add(longer, {});
      grammar_.add(longer, {part.rule, rest});
      rest = longer;
    }
    return {rest, least == 0};
  }

  std::optional<Range> repetition() {
    if (take('*')) return Range{0, kEndless};
    if (take('+')) return Range{1, kEndless};
    if (take('?')) return Range{0, 1};
    if (!take('{')) return std::nullopt;
    const int least = number();
    int most = least;
    if (take(',')) most = next_is('}') ? kEndless : number();
    if (!take('}') || (most != kEndless && most < least)) {
      fail("a repetition that is not {N}, {N,} or {N,M}");
    }
    return Range{least, most};
  }

  int number() {
    int value = 0;
    if (pattern_.empty() || !std::isdigit(static_cast<unsigned char>(pattern_[0]))) {
      fail("a repetition without a number");
    }
    while (!pattern_.empty() && std::isdigit(static_cast<unsigned char>(pattern_[0]))) {
      value = 10 * value + (take() - '0');
      if (value > kMaxRepeats) fail(fmt::format("a repetition of more than {}", kMaxRepeats));
    }
    return value;
  }

  ByteGrammar& grammar_;
  JsonGrammar json_;
  std::string_view pattern_;  // what is left of it
  const std::string& place_;
  int groups_ = 0;
  std::optional<Rule> anything_;
};

}  // namespace

Rule pattern_rule(ByteGrammar& grammar, std::string_view pattern, const std::string& place) {
  return PatternReader(grammar, pattern, place).read();
}

}  // namespace fasa::text
