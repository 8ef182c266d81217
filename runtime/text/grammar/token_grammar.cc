#include "runtime/text/grammar/token_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace fasa::text {

using State = GrammarAutomaton::State;

TokenGrammar::TokenGrammar(ByteGrammar grammar, std::shared_ptr<const TokenTable> tokens)
    : tokens_(std::move(tokens)), automaton_(std::move(grammar)) {}

TokenGrammar::Text TokenGrammar::begin() {
  const std::lock_guard lock(mutex_);
  Text text;
  text.state_ = automaton_.start();
  text.age_ = age_;
  return text;
}

void TokenGrammar::forget() {
  automaton_.clear();
  runs_.clear();
  masks_.clear();
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

std::shared_ptr<const TokenGrammar::Mask> TokenGrammar::allowed(Text& text) {
  const std::lock_guard lock(mutex_);
  find(text);
  if (const auto found = masks_.find(text.state_); found != masks_.end()) return found->second;
  auto mask = compute(text.state_);
  if ((masks_.size() + 1) * mask->size() * sizeof(uint64_t) > kMaskBytes) masks_.clear();
  masks_.emplace(text.state_, mask);
  return mask;
}

// Walks the vocabulary's tree: a branch is left where the grammar rejects its bytes, and taken
// whole where it takes all that the branch contains.
std::shared_ptr<const TokenGrammar::Mask> TokenGrammar::compute(State state) {
  auto mask = std::make_shared<Mask>((static_cast<size_t>(tokens_->end_id()) + 63) / 64);
  const TokenTrie& trie = tokens_->trie();
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  bool any = automaton_.accepts(state);
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
      (*mask)[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    }
    any = any || nodes[behind].first > node.first;
    at = behind;
  }
  if (!any) throw InputError("no token of the vocabulary can continue the requested grammar here");
  return mask;
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
  size_t bytes = automaton_.states() * kState;
  for (const auto& [state, mask] : masks_) bytes += mask->size() * sizeof(uint64_t);
  return bytes;
}

}  // namespace fasa::text
