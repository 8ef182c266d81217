#include "runtime/text/grammar/grammar_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace fasa::text {

GrammarAutomaton::GrammarAutomaton(ByteGrammar grammar) : grammar_(std::move(grammar)) { clear(); }

void GrammarAutomaton::clear() {
  frames_.clear();
  frame_of_.clear();
  states_.clear();
  state_of_.clear();
  behind_byte_.clear();
  std::vector<Reading> open;
  for (const auto& sequence : grammar_.sequences(grammar_.start())) {
    open.push_back(frame(sequence.begin, kDone));
  }
  start_ = new_state(std::move(open));
}

// At the end of a sequence, the reading is the stack below it.
GrammarAutomaton::Reading GrammarAutomaton::frame(ByteGrammar::Place place, Reading below) {
  if (grammar_.symbol(place) == ByteGrammar::kEnd) return below;
  const uint64_t key =
      (static_cast<uint64_t>(static_cast<uint32_t>(place)) << 32) | static_cast<uint32_t>(below);
  const auto [found, is_new] = frame_of_.try_emplace(key, static_cast<Reading>(frames_.size()));
  if (is_new) {
    if (frames_.size() >= kMaxReadings) {
      throw InputError(fmt::format("the schema is too complex: parsing needs more than {} readings",
                                   kMaxReadings));
    }
    const int depth = below == kDone ? 0 : frames_[static_cast<size_t>(below)].depth;
    frames_.push_back({place, below, depth + 1});
  }
  return found->second;
}

// Bytes that all readings treat alike are answered together.
GrammarAutomaton::State GrammarAutomaton::find_next(State state, unsigned char byte) {
  std::vector<Reading> open;
  ByteSet alike = ByteSet().set();
  for (const Reading reading : states_[static_cast<size_t>(state)].readings) {
    const Frame at = frames_[static_cast<size_t>(reading)];
    const ByteSet& expected = grammar_.bytes(grammar_.symbol(at.place));
    const bool fits = expected.test(byte);
    alike &= fits ? expected : ~expected;
    if (fits) open.push_back(frame(at.place + 1, at.below));
  }
  State found = kDead;
  if (!open.empty()) {
    const auto [known, is_new] = behind_byte_.try_emplace(open, kUnknown);
    if (is_new) known->second = new_state(std::move(open));
    found = known->second;
  }
  auto& next = states_[static_cast<size_t>(state)].next;
  for (size_t one = 0; one < next.size(); ++one) {
    if (alike.test(one)) next[one] = found;
  }
  return found;
}

// Expands rules until every reading expects a byte.
GrammarAutomaton::State GrammarAutomaton::new_state(std::vector<Reading> open) {
  std::vector<Reading> readings;
  std::unordered_set<Reading> seen;
  bool accepts = false;
  while (!open.empty()) {
    const Reading reading = open.back();
    open.pop_back();
    if (reading == kDone) accepts = true;
    if (reading == kDone || !seen.insert(reading).second) continue;
    const Frame at = frames_[static_cast<size_t>(reading)];
    const ByteGrammar::Symbol symbol = grammar_.symbol(at.place);
    if (symbol < 0) {
      readings.push_back(reading);
      continue;
    }
    const Reading behind = frame(at.place + 1, at.below);
    const int depth = behind == kDone ? 0 : frames_[static_cast<size_t>(behind)].depth;
    for (const auto& sequence : grammar_.sequences(symbol)) {
      if (depth + sequence.height <= ByteGrammar::kMaxDepth) {
        open.push_back(frame(sequence.begin, behind));
      }
    }
  }
  std::sort(readings.begin(), readings.end());
  const auto [found, is_new] =
      state_of_.try_emplace({std::move(readings), accepts}, static_cast<State>(states_.size()));
  if (is_new) {
    if (states_.size() >= kMaxStates) {
      throw InputError(
          fmt::format("the schema is too complex: parsing needs more than {} states", kMaxStates));
    }
    states_.push_back({.readings = found->first.first, .accepts = accepts, .next = {}});
    states_.back().next.fill(kUnknown);
  }
  return found->second;
}

}  // namespace fasa::text
