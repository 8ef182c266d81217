// Which characters a state of a grammar takes again and again, as within a string: any text of them
// is allowed there, without a look at its bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/text/grammar/grammar_automaton.h"
#include "runtime/text/grammar/token_trie.h"

namespace fasa::text {

// One thread at a time.
class CharacterRuns {
 public:
  explicit CharacterRuns(GrammarAutomaton& automaton) : automaton_(automaton) {}

  // Whether a branch of the vocabulary whose bytes led to `state` is allowed with all its tokens.
  // May be false where it is; never true where it is not.
  bool take(GrammarAutomaton::State state, const TokenTrie::Contents& contents);
  // To be called when the automaton is cleared.
  void clear();

 private:
  using State = GrammarAutomaton::State;
  // Characters after which the automaton is in state `to`.
  struct Step {
    State to = GrammarAutomaton::kDead;  // if few characters have a state in common
    std::array<uint64_t, 2> ascii{};
    std::optional<bool> others;  // all beyond ASCII; looked for when asked for
  };
  // Characters of a step that are taken so many times, in any order.
  struct Run {
    std::array<uint64_t, 2> ascii{};
    uint32_t characters = 0;
    State to = GrammarAutomaton::kDead;  // behind them; kDead where the run ends
  };
  // By state; -1: not looked for yet.
  using Index = std::vector<int32_t>;

  Step& step_of(State state);
  Step find_step(State state);
  // `others`: of characters beyond ASCII too.
  bool goes_on(Step& step, State at, bool others);
  Run& run_of(State state, bool others);
  void extend(Run& run, uint32_t characters, bool others);
  bool others_lead(State state, State to);

  GrammarAutomaton& automaton_;
  Index index_of_step_;
  std::array<Index, 2> index_of_run_;  // without and with others
  std::vector<Step> steps_;
  std::vector<Run> runs_;
};

}  // namespace fasa::text
