// The work between two decode steps, limited so that streaming requests do not wait long for it:
// the prompt tokens of a step, and the time of other work.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace fasa::serve {

inline double seconds_between(std::chrono::steady_clock::time_point begin,
                              std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Measures steps and sizes the next prefill chunk by them. Sizes affect only latency: prefill gives
// the same bits in any chunks.
//
// A chunk has a fixed cost before its first token: weights are read, and unpacked if packed. It is
// estimated from the quickest chunk and the least time per token, because it depends on neither the
// context nor the batch.
class PrefillBudget {
 public:
  static constexpr int kMinChunk = 16;
  static constexpr double kAutomaticMost = 0.1;  // seconds
  // Minimum share of a chunk's time that the automatic budget spends on tokens, not on the fixed
  // cost.
  static constexpr double kUsefulShare = 0.75;

  // `max_step_seconds` 0: automatic. That is twice the current decode step, at most kAutomaticMost,
  // or the time of the smallest chunk that meets kUsefulShare.
  PrefillBudget(double max_step_seconds, int largest_chunk)
      : max_step_seconds_(max_step_seconds), largest_chunk_(largest_chunk) {}

  void decoded(double seconds);
  void prefilled(int64_t tokens, double seconds);
  // Prompt tokens for a step while other sequences decode; the largest chunk if none does.
  int chunk(bool others_decode) const;
  // Time for a piece of other work: half of what the decode step leaves, because a chunk may come
  // too. No limit if no sequence decodes.
  double piece_seconds(bool others_decode) const;

  double decode_seconds() const { return decode_seconds_; }
  // A chunk's cost before its first token.
  double fixed_seconds() const;

 private:
  double max_step() const;

  static constexpr double kNone = std::numeric_limits<double>::infinity();

  double max_step_seconds_;
  int largest_chunk_;
  double decode_seconds_ = 0;     // of a step; running mean
  double prefill_per_token_ = 0;  // seconds beyond the fixed cost; running mean
  double min_seconds_ = kNone;    // the quickest chunk
  int64_t min_tokens_ = 0;        // of that chunk
  double min_per_token_ = kNone;  // seconds; the least of all chunks
  int64_t max_tokens_ = 0;        // of that chunk
};

}  // namespace fasa::serve
