#include "runtime/text/grammar/number_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "runtime/text/grammar/json_grammar.h"

namespace fasa::text {
namespace {

using Rule = ByteGrammar::Rule;

constexpr int kFraction = 15;  // digits

// A bound's amount: whole part and digits behind the point.
struct Decimal {
  int64_t whole = 0;
  std::string fraction;  // without zeros at its end
  bool exclusive = false;
};

std::optional<Decimal> decimal_of(double amount, bool exclusive) {
  const std::string text = fmt::format("{}", amount);
  const size_t point = text.find('.');
  const bool plain = text.find_first_not_of("0123456789.") == std::string::npos;
  if (!plain || amount > static_cast<double>(JsonGrammar::kMaxInteger)) return std::nullopt;
  Decimal decimal{
      .whole = std::stoll(text.substr(0, point)), .fraction = "", .exclusive = exclusive};
  if (point != std::string::npos) decimal.fraction = text.substr(point + 1);
  while (decimal.fraction.ends_with('0')) decimal.fraction.pop_back();
  if (decimal.fraction.size() > kFraction) return std::nullopt;
  return decimal;
}

class RangeGrammar {
 public:
  explicit RangeGrammar(ByteGrammar& grammar) : grammar_(grammar), json_(grammar) {}

  // Adds the amounts from `low` to `high` to `rule`, after `sign`.
  void add(Rule rule, std::string_view sign, const Decimal& low, const Decimal& high) {
    const auto add_whole = [&](Rule whole, Rule fraction) {
      auto symbols = grammar_.literal(sign);
      symbols.insert(symbols.end(), {whole, fraction});
      grammar_.add(rule, symbols);
    };
    if (low.whole == high.whole) {
      const Rule tail = fraction_of(between(low.fraction, high.fraction, low, high, 0),
                                    holds_low(low) && holds_high(high));
      return add_whole(json_.integer(low.whole, low.whole), tail);
    }
    add_whole(json_.integer(low.whole, low.whole),
              fraction_of(above(low.fraction, low.exclusive, 0), holds_low(low)));
    if (low.whole + 1 < high.whole) {
      add_whole(json_.integer(low.whole + 1, high.whole - 1), fraction_of(digits(0), true));
    }
    if (high.exclusive && high.fraction.empty()) return;
    add_whole(json_.integer(high.whole, high.whole),
              fraction_of(below(high.fraction, high.exclusive, 0), holds_high(high)));
  }

 private:
  // Whether the bound's whole number alone meets it.
  static bool holds_low(const Decimal& low) { return low.fraction.empty() && !low.exclusive; }
  static bool holds_high(const Decimal& high) { return !high.fraction.empty() || !high.exclusive; }

  ByteGrammar::Symbol digit(char first, char last) {
    ByteSet bytes;
    for (int c = first; c <= last; ++c) bytes.set(static_cast<size_t>(c));
    return grammar_.byte_of(bytes);
  }
  // "." and digits, or nothing where the whole number alone is in range. A rule without texts is
  // dropped when the grammar is sealed.
  Rule fraction_of(Rule digits, bool none_allowed) {
    const Rule rule = grammar_.new_rule();
    if (none_allowed) grammar_.add(rule, {});
    const Rule some = grammar_.new_rule();
    grammar_.add(some, {grammar_.byte('.'), digits});
    grammar_.add(rule, {some});
    return rule;
  }
  // Up to kFraction - `used` of these digits, and at least one behind the point.
  Rule some(ByteGrammar::Symbol one, int used) {
    Rule rest = grammar_.new_rule();
    grammar_.add(rest, {});
    for (int left = 1; left <= kFraction - used; ++left) {
      const Rule longer = grammar_.new_rule();
      if (left < kFraction) grammar_.add(longer, {});
      grammar_.add(longer, {one, rest});
      rest = longer;
    }
    return rest;
  }
  Rule digits(int used) { return some(digit('0', '9'), used); }
  Rule zeros(int used) { return some(digit('0', '0'), used); }
  // Digits whose value is not below, or with `exclusive` is above, that of `least`.
  Rule above(std::string_view least, bool exclusive, int used) {
    if (least.empty() && !exclusive) return digits(used);
    const Rule rule = grammar_.new_rule();
    if (used >= kFraction) return rule;
    const char first = least.empty() ? '0' : least[0];
    if (first < '9')
      grammar_.add(rule, {digit(static_cast<char>(first + 1), '9'), digits(used + 1)});
    const std::string_view rest = least.empty() ? least : least.substr(1);
    grammar_.add(rule, {digit(first, first), above(rest, exclusive, used + 1)});
    return rule;
  }
  // Digits whose value is not above, or with `exclusive` is below, that of `most`.
  Rule below(std::string_view most, bool exclusive, int used) {
    if (most.empty()) return exclusive ? grammar_.new_rule() : zeros(used);
    const Rule rule = grammar_.new_rule();
    if (used > 0) grammar_.add(rule, {});  // `most` has further digits
    if (most[0] > '0') {
      grammar_.add(rule, {digit('0', static_cast<char>(most[0] - 1)), digits(used + 1)});
    }
    grammar_.add(rule, {digit(most[0], most[0]), below(most.substr(1), exclusive, used + 1)});
    return rule;
  }
  Rule between(std::string_view least, std::string_view most, const Decimal& low,
               const Decimal& high, int used) {
    if (least.empty() && !low.exclusive) return below(most, high.exclusive, used);
    if (most.empty() || used >= kFraction) return grammar_.new_rule();
    const Rule rule = grammar_.new_rule();
    const char first = least.empty() ? '0' : least[0];
    const std::string_view rest = least.empty() ? least : least.substr(1);
    if (first == most[0]) {
      grammar_.add(rule, {digit(first, first), between(rest, most.substr(1), low, high, used + 1)});
      return rule;
    }
    grammar_.add(rule, {digit(first, first), above(rest, low.exclusive, used + 1)});
    if (most[0] - first > 1) {
      grammar_.add(rule, {digit(static_cast<char>(first + 1), static_cast<char>(most[0] - 1)),
                          digits(used + 1)});
    }
    grammar_.add(rule, {digit(most[0], most[0]), below(most.substr(1), high.exclusive, used + 1)});
    return rule;
  }

  ByteGrammar& grammar_;
  JsonGrammar json_;
};

}  // namespace

std::optional<Rule> number_range(ByteGrammar& grammar, std::optional<NumberBound> least,
                                 std::optional<NumberBound> most) {
  constexpr auto kMost = static_cast<double>(JsonGrammar::kMaxInteger);
  const NumberBound low = least.value_or(NumberBound{-kMost}),
                    high = most.value_or(NumberBound{kMost});
  const bool empty =
      low.value > high.value || (low.value == high.value && (low.exclusive || high.exclusive));
  if (empty) return std::nullopt;
  const Rule rule = grammar.new_rule();
  RangeGrammar range(grammar);
  const NumberBound zero{};
  if (high.value >= 0 && !(high.value == 0 && high.exclusive)) {
    const NumberBound from = low.value < 0 ? zero : low;
    const auto begin = decimal_of(from.value, from.exclusive);
    const auto end = decimal_of(high.value, high.exclusive);
    if (!begin || !end) return std::nullopt;
    range.add(rule, "", *begin, *end);
  }
  if (low.value < 0) {
    // Below zero the bounds change places. Zero itself belongs to the other half.
    const NumberBound from = high.value < 0 ? high : NumberBound{.value = 0, .exclusive = true};
    const auto begin = decimal_of(std::abs(from.value), from.exclusive);
    const auto end = decimal_of(-low.value, low.exclusive);
    if (!begin || !end) return std::nullopt;
    range.add(rule, "-", *begin, *end);
  }
  return rule;
}

}  // namespace fasa::text
