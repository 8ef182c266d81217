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

// Built, then sealed; then immutable and thread-safe. Rules may be recursive, but not as the first
// symbol of a sequence (no left recursion).
class ByteGrammar {
 public:
  using Rule = int32_t;
  // A rule's number, one byte of a set (values below kEnd), or the end of a sequence.
  using Symbol = int32_t;
  static constexpr Symbol kEnd = -1;
  // A symbol's position; the next symbol of its sequence is at the position plus one.
  using Place = int32_t;

  static constexpr size_t kMaxSymbols = 200'000;
  // Maximum depth of the stack of open sequences. A call of a rule takes one level unless it is the
  // last symbol of its sequence.
  static constexpr int kMaxDepth = 192;

  Rule new_rule();
  // Adds an alternative to the rule; {} is the empty text. Throws InputError beyond kMaxSymbols.
  void add(Rule rule, std::span<const Symbol> symbols);
  void add(Rule rule, std::initializer_list<Symbol> symbols) {
    add(rule, std::span<const Symbol>(symbols.begin(), symbols.size()));
  }
  Symbol byte_of(const ByteSet& bytes);
  Symbol byte(char value);
  std::vector<Symbol> literal(std::string_view text);

  // `start`: the rule of a whole text. Drops sequences that no text within kMaxDepth completes.
  // Throws InputError if nothing is left.
  void seal(Rule start);

  struct Sequence {
    Place begin;
    int height;  // minimum stack height needed to complete it
  };
  const std::vector<Sequence>& sequences(Rule rule) const {
    return rules_[static_cast<size_t>(rule)];
  }
  Symbol symbol(Place place) const { return symbols_[static_cast<size_t>(place)]; }
  const ByteSet& bytes(Symbol symbol) const { return sets_[static_cast<size_t>(-2 - symbol)]; }
  Rule start() const { return start_; }
  // One byte of each class of bytes that all symbols treat alike.
  std::span<const unsigned char> byte_classes() const { return byte_classes_; }

 private:
  void measure();
  void find_byte_classes();

  std::vector<Symbol> symbols_;
  std::vector<std::vector<Sequence>> rules_;
  std::vector<ByteSet> sets_;
  std::vector<unsigned char> byte_classes_;
  Rule start_ = 0;
};

}  // namespace fasa::text
