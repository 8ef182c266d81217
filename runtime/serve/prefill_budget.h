// The work between two decode steps, limited so that streaming requests do not wait long for it:
// the prompt tokens of a step, and the time of other work.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

#include "runtime/serve/fixed_cost.h"

namespace fasa::serve {

inline double seconds_between(std::chrono::steady_clock::time_point begin,
                              std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Measures steps and sizes the next prefill chunk by them. Sizes affect only latency: prefill gives
// the same bits in any chunks.
//
// A chunk has a cost before its first token. One part is fixed: weights are read, and unpacked if
// packed. It is estimated from the quickest chunk and the least time per token. The other part
// grows with the context: where rows lie on the host, each chunk reads all earlier ones over the
// link (`read_back` seconds). A smaller chunk makes neither part smaller, and a long prompt pays
// both once a chunk: so a chunk is never so small that they are most of its time.
class PrefillBudget {
 public:
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  static constexpr int kMinChunk = 16;
  static constexpr int kFirstIdle = 64;  // while nothing decodes, before anything was measured
  static constexpr double kAutomaticMost = 0.1;  // seconds
  // Minimum share of a chunk's time that the automatic budget spends on tokens, not on the fixed
  // cost.
  static constexpr double kUsefulShare = 0.75;
  // The same while nothing decodes.
  static constexpr double kIdleUsefulShare = 0.9;

  // `max_step_seconds` 0: automatic. Slots then take three decode steps, but with the step after it
  // no more than kAutomaticMost or, if that is longer, two decode steps; or the time of the
  // smallest chunk that meets kUsefulShare. A limit that is given is exceeded
  // only where reading earlier rows alone takes more than half of it. `idle_seconds`: of a step
  // while nothing decodes, which a new request waits for; none: the largest chunk.
  PrefillBudget(double max_step_seconds, int largest_chunk, double idle_seconds = kNone)
      : max_step_seconds_(max_step_seconds),
        largest_chunk_(largest_chunk),
        idle_seconds_(idle_seconds) {}

  void decoded(double seconds);
  // `read_back`: see SequenceInfo::read_back_seconds; of the sequences in the chunk.
  void prefilled(int64_t tokens, double seconds, double read_back = 0);
  // Prompt tokens for a step; `others_decode`: beside other sequences.
  int chunk(bool others_decode, double read_back = 0) const;
  // Time for prompts between two decode steps, or until new requests are looked for; and the least
  // share of it that their tokens take.
  double slot_seconds(bool others_decode) const;
  double useful_share(bool others_decode) const;
  // Time for a piece of other work: half of what the decode step leaves, because a chunk may come
  // too. No limit if no sequence decodes.
  double piece_seconds(bool others_decode) const;

  double decode_seconds() const { return decode_seconds_; }
  // The part of a chunk's cost before its first token that depends on no context.
  double fixed_seconds() const { return fixed_.seconds(); }

 private:
  double max_step() const;

  double max_step_seconds_;
  int largest_chunk_;
  double idle_seconds_;
  double decode_seconds_ = 0;     // of a step; running mean
  double prefill_per_token_ = 0;  // seconds beyond the fixed cost; running mean
  FixedCost fixed_;
};

}  // namespace fasa::serve
