// How attention of a step is split where a sequence decodes several tokens, each of which selects
// a set of its own: into rounds, whose descriptors have one token each. Tokens of a sequence follow
// each other, in groups of `together` (StepParams) that begin at its first token. If all decoded
// rows are local, one round has all tokens. Else a sequence's hot slots serve the sets of one group
// at a time: each round has a group of every sequence, and a step number of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "runtime/api/sequences/open_step.h"
#include "scheduler/cache/kv_sequence.h"

namespace fasa {

struct DecodeRounds {
  int count = 0;   // 0: none decodes several; attention runs on the step's own descriptors
  int places = 0;  // descriptors of a round
  int together = 1;

  // Descriptors of a sequence in each round, some of which may take no part.
  int places_of(const StepPart& part) const {
    const int tokens = count > 1 || part.mode != StepMode::kDecode ? 1 : part.tokens;
    return (tokens + together - 1) / together * together;
  }
  size_t descriptors() const { return static_cast<size_t>(count) * static_cast<size_t>(places); }

  // How the rows of the step's decoding sequences are reached: over the link if any are.
  static RowAccess access(std::span<const StepPart> sequences) {
    RowAccess access = RowAccess::kLocal;
    for (const StepPart& part : sequences) {
      if (part.mode != StepMode::kDecode) continue;
      access = std::max(access, part.sequence->rows().access());
    }
    return access;
  }
  // The most that of() may give, before it is known how rows are reached.
  static int most(std::span<const StepPart> sequences) {
    int longest = 1;
    for (const StepPart& part : sequences) {
      if (part.mode == StepMode::kDecode) longest = std::max(longest, part.tokens);
    }
    return longest;
  }
  static DecodeRounds of(std::span<const StepPart> sequences, int together) {
    const int longest = most(sequences);
    if (longest == 1) return {0, static_cast<int>(sequences.size())};
    const bool local = access(sequences) == RowAccess::kLocal;
    DecodeRounds rounds = {.count = local ? 1 : (longest + together - 1) / together,
                           .together = std::min(together, longest)};
    for (const StepPart& part : sequences) rounds.places += rounds.places_of(part);
    return rounds;
  }
};

}  // namespace fasa
