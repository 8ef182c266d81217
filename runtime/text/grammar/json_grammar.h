// Grammars of JSON texts: any value, numbers in a range, strings of limited length.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/text/grammar/byte_grammar.h"
#include "runtime/text/grammar/json_dialect.h"

namespace fasa::text {

// Adds JSON rules to a grammar, each kind once. White space between tokens is one blank, or a
// newline and up to 20 blanks.
class JsonGrammar {
 public:
  using Rule = ByteGrammar::Rule;
  // Limit of integers: doubles hold every one up to 15 digits.
  static constexpr int64_t kMaxInteger = 999'999'999'999'999;

  explicit JsonGrammar(ByteGrammar& grammar, JsonDialect dialect = {})
      : grammar_(grammar), dialect_(std::move(dialect)) {}

  bool has_dialect() const { return !dialect_.quote.empty(); }
  // As the dialect spells a value, and a key of an object.
  std::string spelled(const nlohmann::ordered_json& value) const {
    return dialect_text(value, dialect_);
  }
  std::string key(const std::string& name) const { return dialect_key(name, dialect_); }
  // Any text, up to the first `mark` and with it. Bytes that UTF-8 never has occur in the mark
  // alone.
  Rule text_until(std::string_view mark);

  Rule blanks();
  Rule value();   // of any kind
  Rule object();  // with any members
  Rule array();
  Rule string();
  Rule number();
  Rule string_character();  // of a string, or an escape
  Rule wide_character();    // beyond ASCII
  // A string of `least` to `most` characters; without `most`, of at least `least`.
  Rule string(int64_t least, std::optional<int64_t> most);
  // An integer in [least, most]; both bounds within +-kMaxInteger.
  Rule integer(int64_t least = -kMaxInteger, int64_t most = kMaxInteger);
  // "date", "time", "date-time", "uuid"; nullopt for others.
  std::optional<Rule> format(std::string_view name);

  // { members }: each is `member`.
  Rule object_of(Rule member);
  // "KEY": value, with any text as key.
  Rule member_of(Rule value);
  // [ items ], `least` to `most` of them. `item`: after the `first` ones; none: no others.
  Rule array_of(std::optional<Rule> item, int64_t least, std::optional<int64_t> most,
                std::span<const Rule> first = {});
  Rule literal(std::string_view text);
  Rule choice(std::initializer_list<Rule> rules);

 private:
  Rule character();
  Rule characters(int64_t count);
  Rule characters_up_to(int64_t most);
  Rule digits(int least, int most);
  Rule below(std::string_view least, std::string_view most);
  Rule list_of(Rule item);
  ByteGrammar::Symbol range(unsigned char first, unsigned char last);

  ByteGrammar& grammar_;
  const JsonDialect dialect_;
  std::optional<Rule> blanks_, value_, object_, array_, string_, number_, character_, block_;
};

}  // namespace fasa::text
