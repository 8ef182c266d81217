#include "runtime/text/grammar/token_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace fasa::text {

using State = GrammarAutomaton::State;

namespace {

using Pair = std::pair<State, State>;

// The search ends beyond these: nested values have more pairs than a mask's computation is worth,
// and each may be new to the automaton. A JSON string with escapes has 1037 pairs and 871 states.
constexpr size_t kMaxPairs = 1536;
constexpr size_t kMaxNewStates = 1024;

// Pairs that texts lead to, each at its shortest text.
class Pairs {
 public:
  Pairs(GrammarAutomaton& automaton, Pair first) : automaton_(automaton) {
    seen_.reserve(kMaxPairs);
    add(first);
  }

  bool all_seen() const { return next_ == pairs_.size(); }
  // Follows the pairs of the shortest texts by one byte. False: the states are not alike, or it
  // takes too long.
  bool follow() {
    for (const size_t end = pairs_.size(); next_ < end; ++next_) {
      const auto [a, b] = pairs_[next_];
      for (const unsigned char byte : automaton_.byte_classes()) {
        const Pair behind = {automaton_.next(a, byte), automaton_.next(b, byte)};
        if (behind.first == behind.second) continue;
        if (behind.first == GrammarAutomaton::kDead || behind.second == GrammarAutomaton::kDead) {
          return false;
        }
        add(behind);
      }
      if (pairs_.size() > kMaxPairs || automaton_.states() > max_states_) return false;
    }
    return true;
  }

 private:
  void add(Pair pair) {
    const uint64_t key = (static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32) |
                         static_cast<uint32_t>(pair.second);
    if (seen_.insert(key).second) pairs_.push_back(pair);
  }

  GrammarAutomaton& automaton_;
  const size_t max_states_ = automaton_.states() + kMaxNewStates;
  std::vector<Pair> pairs_;  // in order of their texts' lengths
  std::unordered_set<uint64_t> seen_;
  size_t next_ = 0;
};

// Whether two states of a grammar have the same short continuations, as two places in a string of
// limited length have that are both far from its end: whether the grammar takes the same texts of
// up to `bytes` behind both. May be false where it does, as the search is bounded; never true where
// it does not.
bool are_alike(GrammarAutomaton& automaton, State a, State b, uint32_t bytes) {
  if (a == b) return true;
  if (automaton.states() > GrammarAutomaton::kMaxStates / 2) return false;
  Pairs pairs(automaton, {a, b});
  for (uint32_t length = 0; length < bytes && !pairs.all_seen(); ++length) {
    if (!pairs.follow()) return false;
  }
  return true;
}

}  // namespace

TokenGrammar::TokenGrammar(ByteGrammar grammar, std::shared_ptr<const TokenTable> tokens)
    : tokens_(std::move(tokens)), automaton_(std::move(grammar)) {}

TokenGrammar::Text TokenGrammar::begin() {
  const std::lock_guard lock(mutex_);
  Text text;
  text.state_ = automaton_.start();
  text.age_ = age_;
  return text;
}

void TokenGrammar::forget_masks() {
  masks_.clear();
  to_share_.clear();
  kept_masks_ = 0;
  searched_states_ = 0;
}

void TokenGrammar::forget() {
  automaton_.clear();
  runs_.clear();
  forget_masks();
  ++age_;
}

// Looks up the text's state again if the automaton was cleared.
void TokenGrammar::find(Text& text) {
  const bool too_many = automaton_.states() > max_states_;
  if (too_many) forget();
  if (text.age_ == age_) return;
  text.state_ = automaton_.start();
  for (const char byte : text.bytes_) {
    text.state_ = automaton_.next(text.state_, static_cast<unsigned char>(byte));
  }
  text.age_ = age_;
  if (too_many) max_states_ = std::max(kManyStates, 2 * automaton_.states());
}

bool TokenGrammar::is_known(const Text& text) const {
  const std::lock_guard lock(mutex_);
  return text.age_ == age_ && masks_.contains(text.state_);
}

std::shared_ptr<const TokenGrammar::Mask> TokenGrammar::allowed(Text& text) {
  const std::lock_guard lock(mutex_);
  find(text);
  if (const auto found = masks_.find(text.state_); found != masks_.end()) return found->second;
  auto mask = share(text.state_);
  const bool is_new = mask == nullptr;
  if (is_new) {
    auto made = std::make_shared<Mask>((static_cast<size_t>(tokens_->end_id()) + 63) / 64);
    add(tokens_->trie(), text.state_, *made);
    mask = std::move(made);
  }
  const bool any = std::any_of(mask->begin(), mask->end(), [](uint64_t word) { return word != 0; });
  if (!any && !automaton_.accepts(text.state_)) {
    throw InputError("no token of the vocabulary can continue the requested grammar here");
  }
  if (is_new) count(text.state_, mask->size() * sizeof(uint64_t));
  masks_.emplace(text.state_, mask);
  return mask;
}

// A mask that was computed for the state.
void TokenGrammar::count(State state, size_t bytes) {
  if ((kept_masks_ + 1) * bytes > kMaskBytes) forget_masks();
  to_share_.push_front(state);
  if (to_share_.size() > kToShare) to_share_.pop_back();
  ++kept_masks_;
  ++computed_masks_;
}

// The mask of a state that takes the same short tokens, if it takes the same long ones; else null.
// Searches without success may not fill the automaton.
std::shared_ptr<const TokenGrammar::Mask> TokenGrammar::share(State state) {
  for (const State other : to_share_) {
    if (searched_states_ > kManyStates / 4) return nullptr;
    const size_t before = automaton_.states();
    const bool alike = are_alike(automaton_, state, other, TokenTable::kShortBytes);
    searched_states_ = alike ? 0 : searched_states_ + automaton_.states() - before;
    if (alike && same_long_tokens(state, *masks_.at(other))) return masks_.at(other);
  }
  return nullptr;
}

bool TokenGrammar::same_long_tokens(State state, const Mask& mask) {
  const TokenTrie& tokens = tokens_->long_tokens();
  Mask taken(mask.size());
  add(tokens, state, taken);
  return std::all_of(tokens.ids().begin(), tokens.ids().end(), [&](int32_t id) {
    const auto word = static_cast<size_t>(id) / 64;
    return ((mask[word] ^ taken[word]) >> (id % 64) & 1) == 0;
  });
}

// Adds the tokens of the tree that may come next. A branch is left where the grammar rejects its
// bytes, and taken whole where it takes all that the branch contains.
void TokenGrammar::add(const TokenTrie& trie, State state, Mask& mask) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  path_.resize(trie.max_depth() + 1);
  path_[0] = state;
  for (uint32_t at = 0; at + 1 < nodes.size();) {
    const TokenTrie::Node& node = nodes[at];
    const State next = automaton_.next(path_[node.depth - 1], node.byte);
    path_[node.depth] = next;
    uint32_t behind = at + 1;
    if (next == GrammarAutomaton::kDead) {
      at = node.end;
      continue;
    }
    if (node.contents >= 0 && runs_.take(next, trie.contents(node))) behind = node.end;
    for (const int32_t id : trie.ids().subspan(node.first, nodes[behind].first - node.first)) {
      mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    }
    at = behind;
  }
}

void TokenGrammar::push(Text& text, int32_t token) {
  const std::lock_guard lock(mutex_);
  find(text);
  const std::string_view bytes = tokens_->bytes(token);
  State state = text.state_;
  for (const char byte : bytes) {
    state = automaton_.next(state, static_cast<unsigned char>(byte));
    if (state == GrammarAutomaton::kDead) break;
  }
  if (bytes.empty() || state == GrammarAutomaton::kDead) {
    throw InputError(fmt::format("token {} is not allowed here", token));
  }
  text.bytes_ += bytes;
  text.state_ = state;
}

bool TokenGrammar::may_end(Text& text) {
  const std::lock_guard lock(mutex_);
  find(text);
  return automaton_.accepts(text.state_);
}

bool TokenGrammar::is_whole(Text& text) {
  const std::lock_guard lock(mutex_);
  find(text);
  return automaton_.complete(text.state_);
}

size_t TokenGrammar::bytes() const {
  constexpr size_t kState = 2048;  // approximate bytes of a state and its map entry
  const std::lock_guard lock(mutex_);
  const size_t mask_bytes = static_cast<size_t>(tokens_->end_id()) / 8;
  return automaton_.states() * kState + kept_masks_ * mask_bytes;
}

uint64_t TokenGrammar::computed_masks() const {
  const std::lock_guard lock(mutex_);
  return computed_masks_;
}

}  // namespace fasa::text
