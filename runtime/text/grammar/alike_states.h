// Whether two states of a grammar have the same short continuations, as two places in a string of
// limited length have that are both far from its end.
#pragma once

#include <cstdint>

#include "runtime/text/grammar/grammar_automaton.h"

namespace fasa::text {

// Whether the grammar takes the same texts of up to `bytes` behind both states. May be false where
// it does, as the search is bounded; never true where it does not.
bool are_alike(GrammarAutomaton& automaton, GrammarAutomaton::State a, GrammarAutomaton::State b,
               uint32_t bytes);

}  // namespace fasa::text
