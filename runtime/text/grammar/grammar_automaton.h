// Parses texts of a grammar byte by byte. Tracks all readings at once; states are created on
// demand.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/text/grammar/byte_grammar.h"

namespace fasa::text {

// Every state but kDead can be completed to a text of the grammar. One thread at a time.
class GrammarAutomaton {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;
  // Above this number new_state() throws InputError; see clear().
  static constexpr size_t kMaxStates = 65'536;

  explicit GrammarAutomaton(ByteGrammar grammar);

  State start() const { return start_; }
  State next(State state, unsigned char byte) {
    const State known = states_[static_cast<size_t>(state)].next[byte];
    return known != kUnknown ? known : find_next(state, byte);
  }
  // The text may end here.
  bool accepts(State state) const { return states_[static_cast<size_t>(state)].accepts; }
  // The text must end here: nothing can follow.
  bool complete(State state) const {
    const Entry& entry = states_[static_cast<size_t>(state)];
    return entry.accepts && entry.readings.empty();
  }
  size_t states() const { return states_.size(); }
  // Bytes to which all others are alike, in any state.
  std::span<const unsigned char> byte_classes() const { return grammar_.byte_classes(); }
  // Deletes all states but start().
  void clear();

 private:
  // Input still expected: a position in the grammar, then the stack below it.
  using Reading = int32_t;
  static constexpr Reading kDone = -1;
  static constexpr State kUnknown = -2;
  static constexpr size_t kMaxReadings = 1 << 20;
  struct Frame {
    ByteGrammar::Place place;
    Reading below;
    int depth;  // of the stack, with this frame
  };
  struct Entry {
    std::vector<Reading> readings;  // each expects a byte
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
  // Keyed by readings before rules are expanded.
  std::map<std::vector<Reading>, State> behind_byte_;
  State start_ = 0;
};

}  // namespace fasa::text
