#include "runtime/text/grammar/character_runs.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "runtime/base/utf8.h"

namespace fasa::text {
namespace {

constexpr int kFew = 8;  // characters of a step that is worth a look

using Ascii = std::array<uint64_t, 2>;

bool holds(const Ascii& all, const Ascii& some) {
  return (some[0] & ~all[0]) == 0 && (some[1] & ~all[1]) == 0;
}

// The value of `state` in a table that grows with the automaton; found when first asked for.
template <typename Value, typename Find>
Value& kept(std::vector<int32_t>& index_of, std::vector<Value>& values, int32_t state, Find find) {
  const auto at = static_cast<size_t>(state);
  if (at >= index_of.size()) index_of.resize(at + 1, -1);
  if (index_of[at] < 0) {
    Value value = find();  // may look up others
    index_of[at] = static_cast<int32_t>(values.size());
    values.push_back(std::move(value));
  }
  return values[static_cast<size_t>(index_of[at])];
}

}  // namespace

void CharacterRuns::clear() {
  index_of_step_.clear();
  index_of_run_ = {};
  steps_.clear();
  runs_.clear();
}

bool CharacterRuns::take(State state, const TokenTrie::Contents& contents) {
  if (automaton_.states() > GrammarAutomaton::kMaxStates / 2) return false;  // a look adds states
  Run& run = run_of(state, contents.others);
  extend(run, contents.characters, contents.others);
  return contents.characters <= run.characters && holds(run.ascii, contents.ascii);
}

// A well-formed character beyond ASCII, whatever it is.
bool CharacterRuns::others_lead(State state, State to) {
  using Kind = std::tuple<State, int, int, int>;
  std::vector<Kind> seen;
  const auto leads = [&](auto& self, State from, unsigned char low, unsigned char high, int left) {
    if (from == GrammarAutomaton::kDead) return false;
    if (left == 0) return from == to;
    const Kind kind{from, low, high, left};
    if (std::find(seen.begin(), seen.end(), kind) != seen.end()) return true;
    for (int byte = low; byte <= high; ++byte) {
      const State next = automaton_.next(from, static_cast<unsigned char>(byte));
      if (!self(self, next, 0x80, 0xbf, left - 1)) return false;
    }
    seen.push_back(kind);
    return true;
  };
  for (int lead = 0x80; lead < 0x100; ++lead) {
    const auto byte = static_cast<unsigned char>(lead);
    const Utf8Lead kind = utf8_lead(byte);
    if (kind.bytes > 0 &&
        !leads(leads, automaton_.next(state, byte), kind.low, kind.high, kind.bytes - 1)) {
      return false;
    }
  }
  return true;
}

CharacterRuns::Step CharacterRuns::find_step(State state) {
  std::array<State, 128> next;
  std::map<State, int> counts;
  for (size_t byte = 0; byte < next.size(); ++byte) {
    next[byte] = automaton_.next(state, static_cast<unsigned char>(byte));
    if (next[byte] != GrammarAutomaton::kDead) ++counts[next[byte]];
  }
  Step step;
  int most = kFew - 1;
  for (const auto& [to, count] : counts) {
    if (count > most) step.to = to, most = count;
  }
  if (step.to == GrammarAutomaton::kDead) return step;
  for (size_t byte = 0; byte < next.size(); ++byte) {
    if (next[byte] == step.to) step.ascii[byte / 64] |= uint64_t{1} << (byte % 64);
  }
  return step;
}

bool CharacterRuns::goes_on(Step& step, State at, bool others) {
  if (step.to == GrammarAutomaton::kDead) return false;
  if (others && !step.others) step.others = others_lead(at, step.to);
  return !others || *step.others;
}

// A run ends where a later state takes less. It is followed no further than it was asked for: each
// step may be a new state of the automaton.
void CharacterRuns::extend(Run& run, uint32_t characters, bool others) {
  while (run.characters < characters && run.to != GrammarAutomaton::kDead) {
    const State at = run.to;
    Step& step = step_of(at);
    if (goes_on(step, at, others) && holds(step.ascii, run.ascii)) {
      run.characters = step.to == at ? UINT32_MAX : run.characters + 1;
      run.to = step.to;
    } else {
      run.to = GrammarAutomaton::kDead;
    }
  }
}

CharacterRuns::Step& CharacterRuns::step_of(State state) {
  return kept(index_of_step_, steps_, state, [&] { return find_step(state); });
}

CharacterRuns::Run& CharacterRuns::run_of(State state, bool others) {
  return kept(index_of_run_[others ? 1 : 0], runs_, state, [&] {
    Step& step = step_of(state);
    return goes_on(step, state, others) ? Run{step.ascii, 1, step.to} : Run{};
  });
}

}  // namespace fasa::text
