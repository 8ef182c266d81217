// The tokens that may come next if a text is to match a grammar.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/text/grammar/character_runs.h"
#include "runtime/text/grammar/grammar_automaton.h"
#include "runtime/text/grammar/token_table.h"

namespace fasa::text {

// Shared by all answers with this grammar: masks computed for one are reused by the others.
// Thread-safe.
class TokenGrammar {
 public:
  // A text written so far. One thread at a time.
  class Text {
   private:
    friend class TokenGrammar;
    std::string bytes_;
    GrammarAutomaton::State state_ = 0;
    uint64_t age_ = 0;  // the automaton's generation that holds the state
  };
  // One bit per id of the vocabulary, lowest first.
  using Mask = std::vector<uint64_t>;

  TokenGrammar(ByteGrammar grammar, std::shared_ptr<const TokenTable> tokens);

  Text begin();
  // The tokens that may come next. Throws InputError if no token fits, or beyond a limit.
  std::shared_ptr<const Mask> allowed(Text& text);
  // Whether allowed() needs no work.
  bool is_known(const Text& text) const;
  // Throws InputError if the token is not allowed.
  void push(Text& text, int32_t token);
  // Whether the text may end here; is_whole(): and nothing can follow.
  bool may_end(Text& text);
  bool is_whole(Text& text);

  // Masks that were computed so far; states with equal ones share them.
  uint64_t computed_masks() const;
  // Approximate memory in bytes.
  size_t bytes() const;

 private:
  static constexpr size_t kManyStates = 8192;  // limit on cached states, unless one text needs more
  static constexpr size_t kMaskBytes = size_t{16} << 20;
  static constexpr size_t kToShare = 4;

  void find(Text& text);
  std::shared_ptr<const Mask> share(GrammarAutomaton::State state);
  bool same_long_tokens(GrammarAutomaton::State state, const Mask& mask);
  void count(GrammarAutomaton::State state, size_t bytes);
  void add(const TokenTrie& trie, GrammarAutomaton::State state, Mask& mask);
  void forget_masks();
  void forget();

  const std::shared_ptr<const TokenTable> tokens_;
  mutable std::mutex mutex_;
  GrammarAutomaton automaton_;
  uint64_t age_ = 1;
  size_t max_states_ = kManyStates;
  std::unordered_map<GrammarAutomaton::State, std::shared_ptr<const Mask>> masks_;
  std::deque<GrammarAutomaton::State> to_share_;  // whose masks others may have; newest first
  size_t kept_masks_ = 0;                         // different ones in masks_
  size_t searched_states_ = 0;                    // made by searches of share() without success
  uint64_t computed_masks_ = 0;
  CharacterRuns runs_{automaton_};
  std::vector<GrammarAutomaton::State> path_;  // scratch of add()
};

}  // namespace fasa::text
