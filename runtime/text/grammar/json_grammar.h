// Grammars of JSON texts: of any value, of a number in a range, of a string so long.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/text/grammar/byte_grammar.h"

namespace fasa::text {

// Adds JSON rules to a grammar, each kind once. White space between tokens is one blank, or a new
// line and up to 20 blanks.
class JsonGrammar {
 public:
  using Rule = ByteGrammar::Rule;
  // Whole numbers have no more digits, so that doubles hold them.
  static constexpr int64_t kMaxInteger = 999'999'999'999'999;

  explicit JsonGrammar(ByteGrammar& grammar) : grammar_(grammar) {}

  Rule blanks();
  Rule value();   // of any kind
  Rule object();  // with any members
  Rule array();
  Rule string();
  Rule number();
  // A string of `least` to `most` characters; without `most` of any length from `least`.
  Rule string(int64_t least, std::optional<int64_t> most);
  // least <= most, both at most kMaxInteger from zero.
  Rule integer(int64_t least = -kMaxInteger, int64_t most = kMaxInteger);
  // "date", "time", "date-time", "uuid"; nothing for others.
  std::optional<Rule> format(std::string_view name);

  // { members }: `member` is one of them.
  Rule object_of(Rule member);
  // "KEY": value, where the key's text is any.
  Rule member_of(Rule value);
  // [ items ], between so many.
  Rule array_of(Rule item, int64_t least, std::optional<int64_t> most);
  Rule literal(std::string_view text);
  Rule choice(std::initializer_list<Rule> rules);

 private:
  Rule character();
  Rule digits(int least, int most);
  Rule below(std::string_view least, std::string_view most);
  Rule list_of(Rule item);
  ByteGrammar::Symbol range(unsigned char first, unsigned char last);

  ByteGrammar& grammar_;
  std::optional<Rule> blanks_, value_, object_, array_, string_, number_, character_, integer_;
};

}  // namespace fasa::text
