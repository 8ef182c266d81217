// The tokens that a choice must have in the cache, and how each is computed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/llm/generation/token_log.h"

namespace fasa::serve {

// Positions and sizes are in tokens. No method throws, std::bad_alloc aside.
class WantedTokens {
 public:
  WantedTokens() = default;
  // A step of prompt tokens ends at each of `marks`, where the next prompt may part.
  explicit WantedTokens(std::vector<int32_t> ids, std::vector<int64_t> marks = {})
      : ids_(std::move(ids)), marks_(std::move(marks)) {}

  int64_t size() const { return std::ssize(ids_); }
  std::span<const int32_t> ids() const { return ids_; }
  // How the first tokens were computed before; they are computed so again.
  const TokenLog& known() const { return known_; }

  // Sets the known tokens. The first call also decides about all others: decode steps compute them
  // if a conversation goes on with at most `sparse_turn_tokens` of them, else prefill does.
  void set_known(const TokenLog& known, int64_t sparse_turn_tokens) {
    if (!turn_) {
      const bool decodes = goes_on(known) && size() - known.size() <= sparse_turn_tokens;
      turn_ = decodes ? Computed::kDecode : Computed::kPrefill;
    }
    known_ = known;
  }
  // The tokens of `log`, the choice's sequence so far, are computed again, each as before.
  void recompute(const TokenLog& log) {
    if (log.size() >= size()) ids_.assign(log.ids().begin(), log.ids().end());
    if (log.size() > known_.size()) known_ = log;
  }

  // How the token is computed. Tokens after the wanted ones are decoded.
  StepMode mode(int64_t position) const {
    const bool decodes =
        position >= size() || known_.computed(position, turn()) == Computed::kDecode;
    return decodes ? StepMode::kDecode : StepMode::kPrefill;
  }
  // True if all tokens from `position` on are decoded.
  bool decodes_from(int64_t position) const {
    return mode(position) == StepMode::kDecode && run_end(position) >= size();
  }
  // The tokens from `position` on that one step in `mode` may take; 0: another mode is due.
  int64_t left(int64_t position, StepMode mode) const {
    if (position >= size() || this->mode(position) != mode) return 0;
    int64_t end = run_end(position);
    for (const int64_t mark : marks_) {
      if (position < mark) end = std::min(end, mark);
    }
    return end - position;
  }

 private:
  // True if the known tokens end in generated or decoded ones: then the request continues this
  // conversation. A prefilled end may be a prefix that several conversations share.
  static bool goes_on(const TokenLog& known) {
    return known.size() > 0 && known.computed(known.size() - 1) == Computed::kDecode;
  }
  Computed turn() const { return turn_.value_or(Computed::kPrefill); }
  int64_t run_end(int64_t position) const { return known_.run_end(position, size(), turn()); }

  std::vector<int32_t> ids_;
  std::vector<int64_t> marks_;
  TokenLog known_;
  std::optional<Computed> turn_;  // how tokens after the known ones are computed; none: undecided
};

}  // namespace fasa::serve
