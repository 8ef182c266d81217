// How attention of a step is split where a sequence decodes several tokens, each of which selects
// a set of its own: into rounds, whose descriptors have one token each. If all decoded rows are
// local, one round has all tokens. Else a sequence's hot slots serve one set at a time: round i has
// the i-th token of every sequence, and a step number of its own.
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

  bool by_token() const { return count > 1; }
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
  static DecodeRounds of(std::span<const StepPart> sequences) {
    const int longest = most(sequences);
    if (longest == 1) return {0, static_cast<int>(sequences.size())};
    if (access(sequences) == RowAccess::kOverLink) {
      return {longest, static_cast<int>(sequences.size())};
    }
    int tokens = 0;
    for (const StepPart& part : sequences) {
      tokens += part.mode == StepMode::kDecode ? part.tokens : 1;
    }
    return {1, tokens};
  }
};

}  // namespace fasa
