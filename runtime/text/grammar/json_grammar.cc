#include "runtime/text/grammar/json_grammar.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "runtime/text/never_utf8.h"

namespace fasa::text {

using Symbol = ByteGrammar::Symbol;

Symbol JsonGrammar::range(unsigned char first, unsigned char last) {
  ByteSet bytes;
  for (int byte = first; byte <= last; ++byte) bytes.set(static_cast<size_t>(byte));
  return grammar_.byte_of(bytes);
}

JsonGrammar::Rule JsonGrammar::literal(std::string_view text) {
  const Rule rule = grammar_.new_rule();
  grammar_.add(rule, grammar_.literal(text));
  return rule;
}

JsonGrammar::Rule JsonGrammar::choice(std::initializer_list<Rule> rules) {
  const Rule rule = grammar_.new_rule();
  for (const Rule one : rules) grammar_.add(rule, {one});
  return rule;
}

JsonGrammar::Rule JsonGrammar::blanks() {
  if (blanks_) return *blanks_;
  constexpr int kIndent = 20;
  Rule indent = grammar_.new_rule();
  grammar_.add(indent, {});
  for (int i = 0; i < kIndent; ++i) {
    const Rule longer = grammar_.new_rule();
    grammar_.add(longer, {});
    grammar_.add(longer, {grammar_.byte(' '), indent});
    indent = longer;
  }
  blanks_ = grammar_.new_rule();
  grammar_.add(*blanks_, {});
  grammar_.add(*blanks_, {grammar_.byte(' ')});
  grammar_.add(*blanks_, {grammar_.byte('\n'), indent});
  return *blanks_;
}

JsonGrammar::Rule JsonGrammar::value() {
  if (value_) return *value_;
  value_ = grammar_.new_rule();
  for (const Rule kind : {object(), array(), string(), number(), literal("true"), literal("false"),
                          literal("null")}) {
    grammar_.add(*value_, {kind});
  }
  return *value_;
}

JsonGrammar::Rule JsonGrammar::object() {
  if (object_) return *object_;
  object_ = grammar_.new_rule();
  grammar_.add(*object_, {object_of(member_of(value()))});
  return *object_;
}

JsonGrammar::Rule JsonGrammar::array() {
  if (array_) return *array_;
  array_ = grammar_.new_rule();
  grammar_.add(*array_, {array_of(value(), 0, std::nullopt)});
  return *array_;
}

JsonGrammar::Rule JsonGrammar::string_character() { return character(); }

// Unicode table 3-7.
JsonGrammar::Rule JsonGrammar::wide_character() {
  const Symbol tail = range(0x80, 0xbf);
  const Rule one = grammar_.new_rule();
  grammar_.add(one, {range(0xc2, 0xdf), tail});
  grammar_.add(one, {range(0xe0, 0xe0), range(0xa0, 0xbf), tail});
  grammar_.add(one, {range(0xe1, 0xec), tail, tail});
  grammar_.add(one, {range(0xed, 0xed), range(0x80, 0x9f), tail});
  grammar_.add(one, {range(0xee, 0xef), tail, tail});
  grammar_.add(one, {range(0xf0, 0xf0), range(0x90, 0xbf), tail, tail});
  grammar_.add(one, {range(0xf1, 0xf3), tail, tail, tail});
  grammar_.add(one, {range(0xf4, 0xf4), range(0x80, 0x8f), tail, tail});
  return one;
}

// One character or an escape; surrogate escapes come in pairs.
JsonGrammar::Rule JsonGrammar::character() {
  if (character_) return *character_;
  ByteSet plain;
  for (size_t byte = 0x20; byte < 0x80; ++byte) plain.set(byte);
  plain.reset('"').reset('\\');
  const Rule one = grammar_.new_rule();
  grammar_.add(one, {grammar_.byte_of(plain)});
  grammar_.add(one, {wide_character()});
  const auto any_of = [&](std::string_view letters) {
    ByteSet bytes;
    for (const char letter : letters) bytes.set(static_cast<unsigned char>(letter));
    return grammar_.byte_of(bytes);
  };
  const Symbol backslash = grammar_.byte('\\'), u = grammar_.byte('u');
  const Symbol hex = any_of("0123456789abcdefABCDEF"), d = any_of("dD");
  grammar_.add(one, {backslash, any_of("\"\\/bfnrt")});
  grammar_.add(one, {backslash, u, any_of("0123456789abcefABCEF"), hex, hex, hex});
  grammar_.add(one, {backslash, u, d, range('0', '7'), hex, hex});
  grammar_.add(one, {backslash, u, d, any_of("89abAB"), hex, hex, backslash, u, d,
                     any_of("cdefCDEF"), hex, hex});
  character_ = one;
  return one;
}

JsonGrammar::Rule JsonGrammar::string() {
  if (string_) return *string_;
  if (!has_dialect()) {
    string_ = string(0, std::nullopt);
    return *string_;
  }
  string_ = grammar_.new_rule();
  std::vector<Symbol> symbols = grammar_.literal(dialect_.quote);
  symbols.push_back(text_until(dialect_.quote));
  grammar_.add(*string_, symbols);
  return *string_;
}

// Rule i has matched the mark's first i bytes. After another byte, as much of the mark as the text
// then ends with.
JsonGrammar::Rule JsonGrammar::text_until(std::string_view mark) {
  std::vector<Rule> rules;
  for (size_t i = 0; i <= mark.size(); ++i) rules.push_back(grammar_.new_rule());
  ByteSet others;
  others.set();
  for (const char byte : kNeverUtf8) others.reset(static_cast<unsigned char>(byte));
  for (const char byte : mark) others.reset(static_cast<unsigned char>(byte));
  const std::set<char> letters(mark.begin(), mark.end());
  for (size_t i = 0; i < mark.size(); ++i) {
    grammar_.add(rules[i], {grammar_.byte_of(others), rules[0]});
    for (const char byte : letters) {
      std::string text = std::string(mark.substr(0, i)) + byte;
      while (!mark.starts_with(text)) text.erase(0, 1);
      grammar_.add(rules[i], {grammar_.byte(byte), rules[text.size()]});
    }
  }
  grammar_.add(rules.back(), {});
  return rules[0];
}

JsonGrammar::Rule JsonGrammar::string(int64_t least, std::optional<int64_t> most) {
  Rule rest = 0;
  if (most) {
    rest = characters_up_to(*most - least);
  } else {
    rest = grammar_.new_rule();
    grammar_.add(rest, {});
    grammar_.add(rest, {character(), rest});
  }
  const Rule rule = grammar_.new_rule();
  grammar_.add(rule, {grammar_.byte('"'), characters(least), rest, grammar_.byte('"')});
  return rule;
}

// Long strings consist of blocks, so that their grammar stays small.
constexpr int64_t kBlock = 64;

JsonGrammar::Rule JsonGrammar::characters(int64_t count) {
  Rule rest = literal("");
  for (int64_t i = 0; i < count % kBlock; ++i) {
    const Rule longer = grammar_.new_rule();
    grammar_.add(longer, {character(), rest});
    rest = longer;
  }
  if (count < kBlock) return rest;
  if (!block_) {
    block_ = literal("");
    for (int64_t i = 0; i < kBlock; ++i) {
      const Rule longer = grammar_.new_rule();
      grammar_.add(longer, {character(), *block_});
      block_ = longer;
    }
  }
  for (int64_t i = 0; i < count / kBlock; ++i) {
    const Rule longer = grammar_.new_rule();
    grammar_.add(longer, {*block_, rest});
    rest = longer;
  }
  return rest;
}

// A text has one reading: whole blocks, then fewer characters than a block.
JsonGrammar::Rule JsonGrammar::characters_up_to(int64_t most) {
  const auto fewer = [&](int64_t count) {
    Rule rest = literal("");
    for (int64_t i = 0; i < count; ++i) {
      const Rule longer = grammar_.new_rule();
      grammar_.add(longer, {});
      grammar_.add(longer, {character(), rest});
      rest = longer;
    }
    return rest;
  };
  Rule rest = fewer(most % kBlock);
  if (most < kBlock) return rest;
  const Rule short_end = fewer(kBlock - 1), block = characters(kBlock);
  for (int64_t i = 0; i < most / kBlock; ++i) {
    const Rule longer = grammar_.new_rule();
    grammar_.add(longer, {short_end});
    grammar_.add(longer, {block, rest});
    rest = longer;
  }
  return rest;
}

JsonGrammar::Rule JsonGrammar::digits(int least, int most) {
  Rule rest = grammar_.new_rule();
  grammar_.add(rest, {});
  for (int count = 1; count <= most; ++count) {
    const Rule longer = grammar_.new_rule();
    if (most - count >= least) grammar_.add(longer, {});
    grammar_.add(longer, {range('0', '9'), rest});
    rest = longer;
  }
  return rest;
}

// Fits a double: at most 15 digits on each side of the point, and two in the exponent.
JsonGrammar::Rule JsonGrammar::number() {
  if (number_) return *number_;
  const Rule sign = grammar_.new_rule(), whole = grammar_.new_rule();
  const Rule fraction = grammar_.new_rule(), exponent = grammar_.new_rule();
  const Rule exponent_sign = grammar_.new_rule();
  grammar_.add(sign, {});
  grammar_.add(sign, {grammar_.byte('-')});
  grammar_.add(whole, {grammar_.byte('0')});
  grammar_.add(whole, {range('1', '9'), digits(0, 14)});
  grammar_.add(fraction, {});
  grammar_.add(fraction, {grammar_.byte('.'), digits(1, 15)});
  grammar_.add(exponent_sign, {});
  grammar_.add(exponent_sign, {grammar_.byte('-')});
  grammar_.add(exponent_sign, {grammar_.byte('+')});
  grammar_.add(exponent, {});
  const Symbol e = grammar_.byte_of(ByteSet().set('e').set('E'));
  grammar_.add(exponent, {e, exponent_sign, digits(1, 2)});
  number_ = grammar_.new_rule();
  grammar_.add(*number_, {sign, whole, fraction, exponent});
  return *number_;
}

// Numbers between two bounds of equal length. A number whose first digit lies strictly between the
// bounds' first digits may have any further digits.
JsonGrammar::Rule JsonGrammar::below(std::string_view least, std::string_view most) {
  const Rule rule = grammar_.new_rule();
  if (least.empty()) {
    grammar_.add(rule, {});
    return rule;
  }
  const auto first = static_cast<unsigned char>(least[0]);
  const auto last = static_cast<unsigned char>(most[0]);
  const auto rest = static_cast<int>(least.size()) - 1;
  if (first == last) {
    grammar_.add(rule, {range(first, first), below(least.substr(1), most.substr(1))});
    return rule;
  }
  const std::string nines(least.size() - 1, '9'), zeros(least.size() - 1, '0');
  if (least == "0" + zeros && most == "9" + nines) return digits(rest + 1, rest + 1);
  grammar_.add(rule, {range(first, first), below(least.substr(1), nines)});
  grammar_.add(rule, {range(last, last), below(zeros, most.substr(1))});
  if (last - first > 1) {
    grammar_.add(
        rule, {range(static_cast<unsigned char>(first + 1), static_cast<unsigned char>(last - 1)),
               digits(rest, rest)});
  }
  return rule;
}

JsonGrammar::Rule JsonGrammar::integer(int64_t least, int64_t most) {
  const Rule rule = grammar_.new_rule();
  // Digits of bounds with one sign.
  const auto add = [&](int64_t low, int64_t high, bool negative) {
    for (int64_t begin = low; begin <= high;) {
      const std::string text = std::to_string(begin);
      const int64_t end =
          std::min(high, static_cast<int64_t>(std::stoll(std::string(text.size(), '9'))));
      std::vector<Symbol> symbols;
      if (negative) symbols.push_back(grammar_.byte('-'));
      symbols.push_back(below(text, std::to_string(end)));
      grammar_.add(rule, symbols);
      begin = end + 1;
    }
  };
  if (least < 0) add(std::max<int64_t>(1, -most), -least, true);
  if (most >= 0) add(std::max<int64_t>(0, least), most, false);
  return rule;
}

std::optional<JsonGrammar::Rule> JsonGrammar::format(std::string_view name) {
  const Rule hour = choice({below("00", "23")}), sixty = below("00", "59");
  const Rule year = digits(4, 4), month = below("01", "12");
  // 28 days, which every month has.
  const Rule day = below("01", "28");
  const Symbol quote = grammar_.byte('"'), dash = grammar_.byte('-'), colon = grammar_.byte(':');
  const Rule zone = grammar_.new_rule();
  grammar_.add(zone, {grammar_.byte('Z')});
  grammar_.add(zone, {grammar_.byte_of(ByteSet().set('+').set('-')), hour, colon, sixty});
  const Rule rule = grammar_.new_rule();
  if (name == "date") {
    grammar_.add(rule, {quote, year, dash, month, dash, day, quote});
  } else if (name == "time") {
    grammar_.add(rule, {quote, hour, colon, sixty, colon, sixty, zone, quote});
  } else if (name == "date-time") {
    grammar_.add(rule, {quote, year, dash, month, dash, day, grammar_.byte('T'), hour, colon, sixty,
                        colon, sixty, zone, quote});
  } else if (name == "uuid") {
    ByteSet letters;
    for (const char letter : std::string_view("0123456789abcdef")) {
      letters.set(static_cast<unsigned char>(letter));
    }
    const Symbol hex = grammar_.byte_of(letters);
    std::vector<Symbol> symbols = {quote};
    for (int i = 0; i < 32; ++i) {
      if (i == 8 || i == 12 || i == 16 || i == 20) symbols.push_back(dash);
      symbols.push_back(hex);
    }
    symbols.push_back(quote);
    grammar_.add(rule, symbols);
  } else {
    return std::nullopt;
  }
  return rule;
}

JsonGrammar::Rule JsonGrammar::member_of(Rule value) {
  const Rule rule = grammar_.new_rule();
  Rule name = string();
  if (has_dialect()) {  // a word
    ByteSet letters;
    for (int byte = 0; byte < 128; ++byte) {
      if (std::isalnum(byte) != 0 || byte == '_' || byte == '-')
        letters.set(static_cast<size_t>(byte));
    }
    const Rule rest = grammar_.new_rule();
    grammar_.add(rest, {});
    grammar_.add(rest, {grammar_.byte_of(letters), rest});
    name = grammar_.new_rule();
    grammar_.add(name, {grammar_.byte_of(letters), rest});
  }
  grammar_.add(rule, {name, grammar_.byte(':'), blanks(), value});
  return rule;
}

// ", item" repeated, with white space after each.
JsonGrammar::Rule JsonGrammar::list_of(Rule item) {
  const Rule more = grammar_.new_rule();
  grammar_.add(more, {});
  grammar_.add(more, {grammar_.byte(','), blanks(), item, blanks(), more});
  return more;
}

JsonGrammar::Rule JsonGrammar::object_of(Rule member) {
  const Rule members = grammar_.new_rule(), rule = grammar_.new_rule();
  grammar_.add(members, {});
  grammar_.add(members, {member, blanks(), list_of(member)});
  grammar_.add(rule, {grammar_.byte('{'), blanks(), members, grammar_.byte('}')});
  return rule;
}

JsonGrammar::Rule JsonGrammar::array_of(std::optional<Rule> item, int64_t least,
                                        std::optional<int64_t> most, std::span<const Rule> first) {
  const auto firsts = static_cast<int64_t>(first.size());
  if (!item) most = std::min(most.value_or(firsts), firsts);
  // The rule for the text after `counted` items; each round makes that after one item less.
  Rule rest = most ? literal("") : list_of(*item);
  const int64_t counted = most.value_or(std::max({least, firsts, int64_t{1}}));
  for (int64_t there = counted - 1; there >= 0; --there) {
    const Rule next = there < firsts ? first[static_cast<size_t>(there)] : *item;
    const Rule more = grammar_.new_rule();
    if (there >= least) grammar_.add(more, {});
    if (there > 0) grammar_.add(more, {grammar_.byte(','), blanks(), next, blanks(), rest});
    if (there == 0) grammar_.add(more, {next, blanks(), rest});
    rest = more;
  }
  const Rule rule = grammar_.new_rule();
  grammar_.add(rule, {grammar_.byte('['), blanks(), rest, grammar_.byte(']')});
  return rule;
}

}  // namespace fasa::text
