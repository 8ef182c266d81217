// The tokens that may come next if a text is to match a grammar.
#pragma once

#include <cstdint>
#include <list>
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
  // Throws InputError if the token is not allowed.
  void push(Text& text, int32_t token);
  // Whether the text may end here; is_whole(): and nothing can follow.
  bool may_end(Text& text);
  bool is_whole(Text& text);

  // Approximate memory in bytes.
  size_t bytes() const;

 private:
  static constexpr size_t kManyStates = 8192;  // limit on cached states, unless one text needs more
  static constexpr size_t kMaskBytes = size_t{16} << 20;

  void find(Text& text);
  std::shared_ptr<const Mask> compute(GrammarAutomaton::State state);
  void forget();

  const std::shared_ptr<const TokenTable> tokens_;
  mutable std::mutex mutex_;
  GrammarAutomaton automaton_;
  uint64_t age_ = 1;
  size_t max_states_ = kManyStates;
  std::unordered_map<GrammarAutomaton::State, std::shared_ptr<const Mask>> masks_;
  CharacterRuns runs_{automaton_};
  std::vector<GrammarAutomaton::State> path_;  // scratch of compute()
};

}  // namespace fasa::text
