// A context-free grammar over bytes.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace fasa::text {

using ByteSet = std::bitset<256>;

// Built, then sealed, then read by any number of threads. Rules may call each other and themselves,
// but not as the first symbol of a sequence (no left recursion).
class ByteGrammar {
 public:
  using Rule = int32_t;
  // A rule (its number), one byte of a set (below kEnd), or the end of a sequence.
  using Symbol = int32_t;
  static constexpr Symbol kEnd = -1;
  // A symbol's place; the next one of its sequence is one behind.
  using Place = int32_t;

  static constexpr size_t kMaxSymbols = 200'000;
  // Maximum depth of the stack of open sequences. Every call of a rule takes one level, except a
  // sequence's last.
  static constexpr int kMaxDepth = 192;

  Rule new_rule();
  // One more sequence that the rule may be; {} is the empty text. Throws InputError beyond
  // kMaxSymbols.
  void add(Rule rule, std::span<const Symbol> symbols);
  void add(Rule rule, std::initializer_list<Symbol> symbols) {
    add(rule, std::span<const Symbol>(symbols.begin(), symbols.size()));
  }
  Symbol byte_of(const ByteSet& bytes);
  Symbol byte(char value);
  std::vector<Symbol> literal(std::string_view text);

  // `start`: what a whole text is. Sequences that no text of kMaxDepth ends are dropped. Throws
  // InputError where nothing is left.
  void seal(Rule start);

  struct Sequence {
    Place begin;
    int height;  // of the stack, at least, until it ends
  };
  const std::vector<Sequence>& sequences(Rule rule) const {
    return rules_[static_cast<size_t>(rule)];
  }
  Symbol symbol(Place place) const { return symbols_[static_cast<size_t>(place)]; }
  const ByteSet& bytes(Symbol symbol) const { return sets_[static_cast<size_t>(-2 - symbol)]; }
  Rule start() const { return start_; }

 private:
  void measure();

  std::vector<Symbol> symbols_;
  std::vector<std::vector<Sequence>> rules_;
  std::vector<ByteSet> sets_;
  Rule start_ = 0;
};

}  // namespace fasa::text
