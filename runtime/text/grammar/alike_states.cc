#include "runtime/text/grammar/alike_states.h"

#include <unordered_set>
#include <utility>
#include <vector>

namespace fasa::text {
namespace {

using State = GrammarAutomaton::State;
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

}  // namespace

bool are_alike(GrammarAutomaton& automaton, State a, State b, uint32_t bytes) {
  if (a == b) return true;
  if (automaton.states() > GrammarAutomaton::kMaxStates / 2) return false;
  Pairs pairs(automaton, {a, b});
  for (uint32_t length = 0; length < bytes && !pairs.all_seen(); ++length) {
    if (!pairs.follow()) return false;
  }
  return true;
}

}  // namespace fasa::text
