#include "runtime/text/grammar/byte_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <set>
#include <utility>

namespace fasa::text {
namespace {

constexpr int kEndless = std::numeric_limits<int>::max();

}  // namespace

ByteGrammar::Rule ByteGrammar::new_rule() {
  rules_.emplace_back();
  return static_cast<Rule>(rules_.size() - 1);
}

void ByteGrammar::add(Rule rule, std::span<const Symbol> symbols) {
  if (symbols_.size() + symbols.size() + 1 > kMaxSymbols) {
    throw InputError(fmt::format(
        "the schema is too large: its grammar exceeds the limit of {} symbols", kMaxSymbols));
  }
  rules_[static_cast<size_t>(rule)].push_back({static_cast<Place>(symbols_.size()), kEndless});
  symbols_.insert(symbols_.end(), symbols.begin(), symbols.end());
  symbols_.push_back(kEnd);
}

ByteGrammar::Symbol ByteGrammar::byte_of(const ByteSet& bytes) {
  const auto found = std::find(sets_.begin(), sets_.end(), bytes);
  const auto index = static_cast<Symbol>(found - sets_.begin());
  if (found == sets_.end()) sets_.push_back(bytes);
  return -2 - index;
}

ByteGrammar::Symbol ByteGrammar::byte(char value) {
  return byte_of(ByteSet().set(static_cast<unsigned char>(value)));
}

std::vector<ByteGrammar::Symbol> ByteGrammar::literal(std::string_view text) {
  std::vector<Symbol> symbols;
  for (const char value : text) symbols.push_back(byte(value));
  return symbols;
}

// Knuth's generalisation of Dijkstra's algorithm: the lowest known rule is final.
void ByteGrammar::measure() {
  struct Use {
    Rule caller;
    size_t sequence;
    int frames;  // stack levels of the call
  };
  std::vector<std::vector<Use>> uses(rules_.size());
  std::vector<std::vector<int>> missing(rules_.size());
  std::vector<bool> known(rules_.size());
  using Entry = std::pair<int, Rule>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> next;
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    for (size_t i = 0; i < rules_[rule].size(); ++i) {
      int calls = 0;
      for (Place at = rules_[rule][i].begin; symbol(at) != kEnd; ++at) {
        if (symbol(at) < 0) continue;
        ++calls;
        uses[static_cast<size_t>(symbol(at))].push_back(
            {static_cast<Rule>(rule), i, symbol(at + 1) == kEnd ? 0 : 1});
      }
      missing[rule].push_back(calls);
      rules_[rule][i].height = 0;
      if (calls == 0) next.emplace(0, static_cast<Rule>(rule));
    }
  }
  while (!next.empty()) {
    const auto [height, rule] = next.top();
    next.pop();
    if (known[static_cast<size_t>(rule)]) continue;
    known[static_cast<size_t>(rule)] = true;
    for (const Use& use : uses[static_cast<size_t>(rule)]) {
      const auto caller = static_cast<size_t>(use.caller);
      int& needed = rules_[caller][use.sequence].height;
      needed = std::max(needed, height + use.frames);
      if (--missing[caller][use.sequence] == 0) next.emplace(needed, use.caller);
    }
  }
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    for (size_t i = 0; i < rules_[rule].size(); ++i) {
      if (missing[rule][i] > 0) rules_[rule][i].height = kEndless;
    }
  }
}

void ByteGrammar::find_byte_classes() {
  std::set<std::vector<bool>> classes;
  byte_classes_.clear();
  for (size_t byte = 0; byte < 256; ++byte) {
    std::vector<bool> in_sets;
    for (const ByteSet& set : sets_) in_sets.push_back(set.test(byte));
    if (classes.insert(std::move(in_sets)).second) {
      byte_classes_.push_back(static_cast<unsigned char>(byte));
    }
  }
}

void ByteGrammar::seal(Rule start) {
  start_ = start;
  measure();
  find_byte_classes();
  for (auto& sequences : rules_) {
    std::erase_if(sequences, [](const Sequence& one) { return one.height > kMaxDepth; });
  }
  if (rules_[static_cast<size_t>(start)].empty()) {
    throw InputError(
        fmt::format("no text matches the schema with at most {} levels of nesting", kMaxDepth));
  }
}

}  // namespace fasa::text
