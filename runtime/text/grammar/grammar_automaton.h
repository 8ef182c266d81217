// Reads texts of a grammar byte by byte: all readings at once, states made as they are met.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/text/grammar/byte_grammar.h"

namespace fasa::text {

// Every state but kDead can be gone on from to a text of the grammar. One thread at a time.
class GrammarAutomaton {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;
  // Beyond so many new_state() throws InputError; see clear().
  static constexpr size_t kMaxStates = 65'536;

  explicit GrammarAutomaton(ByteGrammar grammar);

  State start() const { return start_; }
  State next(State state, unsigned char byte) {
    const State known = states_[static_cast<size_t>(state)].next[byte];
    return known != kUnknown ? known : find_next(state, byte);
  }
  // The text may end here.
  bool accepts(State state) const { return states_[static_cast<size_t>(state)].accepts; }
  // And does: nothing follows.
  bool complete(State state) const {
    const Entry& entry = states_[static_cast<size_t>(state)];
    return entry.accepts && entry.readings.empty();
  }
  size_t states() const { return states_.size(); }
  // Forgets all states but start().
  void clear();

 private:
  // What is still to be read: a place of the grammar, then what lies on the stack below.
  using Reading = int32_t;
  static constexpr Reading kDone = -1;
  static constexpr State kUnknown = -2;
  static constexpr size_t kMaxReadings = 1 << 20;
  struct Frame {
    ByteGrammar::Place place;
    Reading below;
    int depth;  // of the stack, this one included
  };
  struct Entry {
    std::vector<Reading> readings;  // each wants a byte next
    bool accepts = false;
    std::array<State, 256> next;
  };
  Reading frame(ByteGrammar::Place place, Reading below);
  State find_next(State state, unsigned char byte);
  State new_state(std::vector<Reading> open);

  const ByteGrammar grammar_;
  std::vector<Frame> frames_;
  std::unordered_map<uint64_t, Reading> frame_of_;
  std::vector<Entry> states_;
  std::map<std::pair<std::vector<Reading>, bool>, State> state_of_;
  std::map<std::vector<Reading>, State> behind_byte_;  // before rules are followed
  State start_ = 0;
};

}  // namespace fasa::text
